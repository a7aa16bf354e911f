"""What neither an import nor a help loads, the names in the way of other modules, and what the wheel holds."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from programs import ROOT

from automedeval.cli.console import COMMANDS

SOURCE = ROOT / "src" / "automedeval"
RECIPES = {path.stem for path in (ROOT / "recipes").glob("*.py") if path.stem != "__init__"}


def test_no_recipe_hides_another_module() -> None:
    # A recipe's folder comes first on sys.path while it runs: recipes/datasets.py would be imported as `datasets`.
    assert RECIPES
    assert not set(RECIPES) & (set(packages_distributions()) | set(sys.stdlib_module_names))


HEAVY = {"torch", "transformers", "datasets", "accelerate"}


@pytest.mark.parametrize("name", ["", "Judge", "load_judge", "OpenAIChat"])
def test_what_an_import_does_not_load(name: str) -> None:
    statement = f"from automedeval import {name}" if name else "import automedeval"
    absent = HEAVY | (set() if name == "OpenAIChat" else {"openai"}) | (set() if name else {"huggingface_hub"})
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(shown))
    assert "automedeval.rubrics" in loaded
    assert loaded & absent == set()


@pytest.mark.parametrize("statement", ["from automedeval import load_judge", "import automedeval.cli.judge"])
def test_threads_that_wait_give_their_core_away(statement: str) -> None:
    """OpenMP reads this when torch is loaded, which neither statement does."""
    code = f"import os, sys\n{statement}\nprint(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "KMP_"))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["PASSIVE", "False"]


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    files = {path.relative_to(SOURCE.parent) for path in SOURCE.rglob("*") if path.is_file()}
    expected = {path.as_posix() for path in files if path.suffix != ".pyc"}
    assert {"automedeval/sample/README.md", "automedeval/rubrics/packaged/automedeval.yaml"} <= expected
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert wheel.stat().st_size < 15e6


SLOW = {"torch", "transformers", "sentence_transformers", "openai", "scipy.special", "scipy.optimize"}
SLOW |= {"fastapi", "pandas", "pyarrow", "datasets", "huggingface_hub"}
HELP = """
import sys
from contextlib import suppress
from automedeval.cli.console import main
for arguments in [["--help"], *([name, "--help"] for name in sys.argv[2:])]:
    sys.argv[:] = ["automedeval", *arguments]
    with suppress(SystemExit):
        main()
print("loaded:", *sorted(sys.modules.keys() & set({slow})))
"""


def test_no_help_loads_a_slow_library() -> None:
    command = [sys.executable, "-c", HELP.format(slow=sorted(SLOW)), "-", *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: automedeval") == 1 + len(COMMANDS)
    assert done.stdout.splitlines()[-1] == "loaded:"
