"""A process that has the package from its wheel alone, without the source tree, and loads the published repositories."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from doubles.hub import READER, HubDouble
from factories import Json
from programs import ROOT

# Run with -I and -S: neither the checkout, nor the folder that it runs in, nor what an editable installation put on the path is
# seen; the folders are named. The judge is loaded by the lines of its own card.
PROGRAM = """
import json, os, sys
installed, models, source = json.loads(sys.argv[1])
sys.path += installed
import automedeval, datasets, evaluate, huggingface_hub
found = {"package": automedeval.__file__, "verdicts": []}
card = open(huggingface_hub.hf_hub_download("org/judge", "README.md"), encoding="utf-8").read()
exec(card.split("```python")[1].split("```")[0], {"print": lambda *values: found["verdicts"].append(values)})
rows = datasets.load_dataset("org/instructions")
found["rows"] = {name: rows[name]["prompt_digest"][:] for name in rows}
score = evaluate.load("org/rationale_score")
texts = {"predictions": ["The dose is right.", "Rest."], "references": [["The dose is wrong."], ["Rest."]]}
found["scores"] = score.compute(**texts, bert_model=models[0], bert_num_layers=2, bart_model=models[1])
files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
found["of_the_checkout"] = sorted(file for file in files if file.startswith(tuple(source)))
print("FOUND", json.dumps(found))
"""


def build(folder: Path) -> Path:
    """Build the package's wheel without the network, from a copy of the checkout, which the build would litter."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(
        ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*command, "--wheel-dir", folder, checkout], check=True, capture_output=True)
    (wheel,) = folder.glob("automedeval-*.whl")
    return wheel


def unpack(wheel: Path, folder: Path) -> list[str]:
    """Unpack the wheel; return the `sys.path` of a process that has only this and the libraries."""
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    origins = [importlib.util.find_spec(name).origin for name in ("torch", "datasets", "evaluate")]
    return [
        str(folder / "installed"),
        *dict.fromkeys(str(Path(origin).parents[1]) for origin in origins),
    ]


def load_back(hub: HubDouble, installed: list[str], home: Path, models: tuple[Path, Path]) -> Json:
    """Load org/judge, org/instructions and org/rationale_score from the Hub in a process that has an empty home.

    Args:
        installed: what `unpack` returned.
        home: an empty folder; the process runs in it.
        models: of BERTScore and BARTScore.

    Returns:
        `verdicts`: what the card's lines printed, `rows`: the prompts' digests by split, `scores` of two rationales.
    """
    source = [f"{ROOT / name}{os.sep}" for name in ("src", "recipes", "tests")]
    args = json.dumps([installed, list(map(str, models)), source])
    environment = hub.environment(home, READER)
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, args]
    done = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    result = json.loads(line.removeprefix("FOUND "))
    assert Path(result["package"]).is_relative_to(installed[0]), "the package is the wheel's"
    assert result["of_the_checkout"] == []
    return result
