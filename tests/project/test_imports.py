"""No help loads a slow library; `make quality` checks the import contract of setup.cfg."""

import subprocess
import sys

from automedeval.cli.console import COMMANDS

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
