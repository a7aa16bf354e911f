"""What continuous integration counts, installs and refuses."""

import os
import re
import subprocess
import sys
from pathlib import Path

from programs import ROOT, succeeded


def count(checkout: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / ".ci" / "count_lines.py", checkout]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_rooms_arrows_and_options_are_counted_and_too_many_lines_fail(tmp_path: Path):
    files = {
        "src/automedeval/__init__.py": "from automedeval import lower\n",
        "src/automedeval/upper/one.py": "import automedeval.lower\nfrom automedeval.upper import two\n",
        "src/automedeval/upper/two.py": 'from automedeval import lower\na = field(metadata={"help": "b"})\n',
        "src/automedeval/lower.py": "import ast\n",
        "src/automedeval/data/rows.csv": "a,b\n",
        "recipes/do.py": "from automedeval.upper.one import lower\n",
        "docs/page.md": "é\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    printed = succeeded(count(tmp_path))
    assert "src, lines of Python: 6, at most" in printed.stdout
    assert "docs/*.md, bytes: 3, at most" in printed.stdout
    assert "options declared: 1, at most" in printed.stdout
    assert "rooms: 2, at most" in printed.stdout
    assert "arrows between rooms: 3, at most" in printed.stdout

    (tmp_path / "src/automedeval/lower.py").write_text("\n" * 100_000, encoding="utf-8")
    above = count(tmp_path)
    assert above.returncode != 0
    assert above.stderr == "above the limit: src, lines of Python\n"


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
