"""The import contract in setup.cfg: the package keeps it, and a breach of either rule fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from programs import ROOT

from automedeval.cli.console import COMMANDS

LINT = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path) -> subprocess.CompletedProcess:
    """Check the package under `folder` by the contract of this project."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [str(LINT), "--no-cache", "--config", str(ROOT / "setup.cfg")]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


FLOORS = "A room imports only from the floors below its own"


def test_each_breach_of_the_contract_is_found(tmp_path: Path) -> None:
    package = tmp_path / "automedeval"
    shutil.copytree(ROOT / "src" / "automedeval", package, ignore=shutil.ignore_patterns("__pycache__", "sample"))
    breaches = {"stats": "automedeval.records", "audit": "automedeval.training", "rubrics": "torch"}
    for room, other in breaches.items():
        with open(package / room / "__init__.py", "a", encoding="utf-8") as stream:
            stream.write(f"\nimport {other}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [row for row in done.stdout.splitlines() if "BROKEN" in row]
    assert [row.startswith(start) for row, start in zip(broken, (FLOORS, "torch"), strict=True)] == [True, True]
    for room, other in breaches.items():
        assert f"automedeval.{room} -> {other} (" in done.stdout
    (package / "helpers").mkdir()
    (package / "helpers" / "__init__.py").touch()
    assert "helpers" in lint(tmp_path).stdout, "a new room needs a floor"


def test_the_package_keeps_the_contract() -> None:
    assert lint(ROOT / "src").returncode == 0


SLOW = {"torch", "transformers", "sentence_transformers", "openai", "matplotlib", "scipy.special", "scipy.optimize"}
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
