"""What continuous integration refuses."""

import os
import re
import subprocess
import sys
from pathlib import Path

from programs import ROOT


def test_a_skip_fails_there_that_is_not_expected(tmp_path: Path) -> None:
    for name, reason in (("data", "AUTOMEDEVAL_DATA does not name it"), ("browser", "no chromium")):
        lines = ["import pytest", "def test_one():", f"    pytest.skip({reason!r})"]
        (tmp_path / f"test_{name}.py").write_text("\n".join(lines))
    (tmp_path / "test_library.py").write_text("import pytest\npytest.importorskip('no_such_library')\n")
    options = ["-p", "conftest", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--rootdir", tmp_path]
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "setup.cfg", *options, tmp_path]
    failing, missing = ["1 failed", "1 skipped", "1 error"], ["2 skipped", "1 error"]
    for ci, without, ends in ("", "", ["3 skipped"]), ("true", "", failing), ("true", "chromium", missing):
        environment = os.environ | {"CI": ci, "AUTOMEDEVAL_MISSING": without, "PYTHONPATH": str(ROOT / "tests")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert re.findall(r"\d+ (?:failed|skipped|error)", done.stdout.splitlines()[-1]) == ends
