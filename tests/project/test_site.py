"""The documents as a site, the notebook, what GitHub reads, and what continuous integration refuses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from programs import ROOT, needs_encoder


def test_the_site_builds_without_a_warning_and_loads_nothing_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "fonts.googleapis" not in text
        assert '<script src="http' not in text
        assert '<link rel="stylesheet" href="http' not in text


@needs_encoder
def test_the_notebook_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    notebook = json.loads((ROOT / "docs/quickstart.ipynb").read_text(encoding="utf-8"))
    names: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are not committed"
            exec(compile("".join(cell["source"]), "quickstart.ipynb", "exec"), names)
    scored, table = names["scored"].to_pandas(), names["table"]
    assert (scored.model_a_score > scored.model_b_score).all()
    assert table.valid.all()
    assert table.case_id.nunique() == len(names["cases"])


def test_github_can_read_its_files() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    for schema, folder in (("github-workflows", "workflows"), ("github-issue-forms", "ISSUE_TEMPLATE")):
        files = sorted((ROOT / ".github" / folder).glob("*.yml"))
        files = [file for file in files if file.name != "config.yml"]
        assert files
        done = subprocess.run([*checker, f"vendor.{schema}", *files], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert "permissions" in jobs, "the least permissions are named"
        for step in (step for job in jobs["jobs"].values() for step in job["steps"] if "uses" in step):
            assert re.search(r"@[0-9a-f]{40}$", step["uses"]), "it is named by its commit, which cannot move"
    form = ROOT / ".github/ISSUE_TEMPLATE/bug.yml"
    assert "automedeval doctor" in form.read_text(encoding="utf-8")


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
