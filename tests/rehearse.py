"""Rehearse the paper's study: its scripts with tiny models, few rows and a double of the endpoint, in a folder of its own.

    python tests/rehearse.py --place rehearsals
    python tests/rehearse.py --place rehearsals --variant no_chain

In the folder the paths of the YAMLs mean the same as in the repository: src, recipes, accelerate_configs and model_card.md lead
there, stand-ins lie where the user's own files would, and `plans` holds the YAMLs. Those differ from the study's own in the
keys of tests/data/rehearsal.yaml, in counts, and in the names of the models that are asked.
"""

import argparse
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import yaml
from doubles.stand_ins import BROUGHT, CASES, decide, stand_in
from doubles.study_endpoint import serve
from factories import read_yaml
from programs import ROOT

from automedeval.records.teachers import read_teachers, teacher_arguments

RUN = Path("recipes/runs/automedeval-13b")
PLANS = Path("plans")
OWN = ("src", "recipes", "accelerate_configs", "model_card.md")  # what the repository holds
SMALLER = read_yaml(ROOT / "tests/data/rehearsal.yaml")
PEOPLE = """#!{python}
import sys
sys.path[:0] = [{tests!r}, {src!r}]
from rehearse import play
play(sys.argv[1])
"""


def small_yaml(file: Path) -> Any:
    """Return the content of a study's YAML as it is rehearsed."""
    content = read_yaml(file)
    if file.name == "teachers.yaml":  # of a double at OPENAI_BASE_URL
        for role, settings in content.items():
            if isinstance(settings, dict):
                model = f"double-of-{settings['model']}"
                content[role] = {"model": model, "paper": settings["paper"]}
        return content
    if file.stem == "counts":
        return content | {"share": share()}
    if file.stem.startswith("plan"):
        return counted(content)
    return content | SMALLER.get(file.stem, {})


def share() -> float:
    counts = read_yaml(ROOT / RUN / "counts.yaml")
    return CASES / counts["files"]["cases/wikidoc/cases.jsonl"]


def counted(value: Any) -> Any:
    """Return a plan with its counts in proportion."""
    if isinstance(value, dict):
        smaller = (
            {"take": max(1, int(value["take"] * share()))} if type(value.get("take")) is int else {}
        )
        return {key: counted(each) for key, each in value.items()} | smaller
    return [counted(each) for each in value] if isinstance(value, list) else value


def prepare(place: Path) -> None:
    """Make the folder: links to what the repository holds, small YAMLs, stand-ins for what the user brings, and people."""
    (place / PLANS).mkdir(parents=True, exist_ok=True)
    for name in OWN:
        if not (place / name).is_symlink():
            (place / name).symlink_to(ROOT / name)
    for file in (ROOT / RUN).glob("*.yaml"):
        text = yaml.safe_dump(small_yaml(file), sort_keys=False)
        (place / PLANS / file.name).write_text(text, encoding="utf-8", newline="\n")
    with redirect_stdout(io.StringIO()):  # DeepSpeed writes there when it is first imported
        for path, (_, of) in BROUGHT.items():
            if not of and not (place / path).exists():
                stand_in(path, place)
    people = place / "people"
    people.write_text(
        PEOPLE.format(python=sys.executable, tests=str(ROOT / "tests"), src=str(ROOT / "src"))
    )
    people.chmod(0o755)


def play(path: str) -> None:
    """Make the file that is due, in the working folder, as physicians would; the jury's decisions as the page exports them."""
    if path.endswith("/decided/jury.jsonl"):
        decided = Path(path)
        decided.parent.mkdir(exist_ok=True)
        decide(decided.parents[1] / decided.name, decided)
        return
    study = PLANS / "annotate.yaml"
    judges = teacher_arguments(read_yaml(study)["prefer"], str(study))["judges"]
    stand_in(path, Path(), judges)


def environment(place: Path) -> Mapping[str, str]:
    """Start the endpoint's double; return the environment of the script."""
    # Verdicts record their endpoint, so a rehearsal that goes on needs the same port.
    file = place / "endpoint.port"
    wanted = int(file.read_text(encoding="utf-8")) if file.exists() else 0
    models = {
        settings["model"] for settings in read_teachers(place / PLANS / "teachers.yaml").values()
    }
    try:
        port = serve(wanted, sorted(models))
    except OSError as error:
        sys.exit(
            f"error: {file}: port {wanted} is taken ({error.strerror}); remove {place} to begin anew"
        )
    file.write_text(f"{port}\n", encoding="utf-8", newline="\n")
    binaries = Path(
        sys.executable
    ).parent  # of python, automedeval and accelerate; DeepSpeed looks for ninja there
    return os.environ | {
        "RUN": str(PLANS),
        "LAUNCH": "python",  # one process does as many rows
        "TRAIN": "accelerate launch --config_file accelerate_configs/zero3_cpu.yaml",
        "PEOPLE": "./people",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": "rehearsal",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def main() -> int:
    """Make the folder, and run the study's own script there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--place", type=Path, default=Path("rehearsals"))
    parser.add_argument("--variant", help="a variant of variants.sh, after the study itself")
    args = parser.parse_args()
    place = (args.place / RUN.name).resolve()
    prepare(place)
    script = (
        [place / RUN / "variants.sh", args.variant] if args.variant else [place / RUN / "run.sh"]
    )
    return subprocess.run(
        ["bash", *script], cwd=place, env=environment(place), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
