"""The import contract in setup.cfg is kept, and no help loads a slow library."""

import os
import subprocess
import sys
from pathlib import Path

from programs import ROOT

from automedeval.cli.console import COMMANDS


def test_the_package_keeps_the_contract() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [lint, "--no-cache", "--config", ROOT / "setup.cfg"]
    assert subprocess.run(command, cwd=ROOT / "src", env=environment, capture_output=True).returncode == 0


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
