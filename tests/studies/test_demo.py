"""A study that lists its steps runs: it says what each is for, keeps libraries' output in logs, and ends with what it left."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from programs import ROOT, run_recipe

RUN = "recipes/runs/automedeval-135m"
SHORT = {
    "of": RUN,
    "place": "short",
    "steps": [
        {"run": "judge_likelihood", "about": "a first judge, so that there are verdicts", "with": {"limit": 4}},
        {"run": "report", "about": "what they say", "with": {"encoder": "none", "baselines": False, "limit": 4}},
    ],
    "leaves": {"study": {"short/reports/sample/report.html": "the report", "short/verdicts/sample": "the verdicts"}},
    "then": {"Look at the plan": "bash recipes/reproduce.sh recipes/runs/short --dry_run"},
}


def test_a_listed_study_runs_and_goes_on(tmp_path: Path) -> None:
    folder, place = tmp_path / "short", tmp_path / "rehearsals" / "short"
    folder.mkdir()
    (folder / "study.yaml").write_text(yaml.safe_dump(SHORT, sort_keys=False))
    command = [sys.executable, "tests/rehearse.py", folder, "--place", tmp_path / "rehearsals"]
    environment = {"PYTHON": sys.executable, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")}
    options = {"cwd": ROOT, "capture_output": True, "text": True, "env": environment, "timeout": 300}
    done = subprocess.run(command, **options)
    assert done.returncode == 0, done.stderr
    steps = done.stdout.partition("\n\n")[0].splitlines()
    assert [re.sub(r"\(\d+ s", "(N s", line) for line in steps] == [
        "2 steps; the logs are in logs/short",
        "== 1/2 a first judge, so that there are verdicts (N s, logs/short/01-judge_likelihood.out)",
        "== 2/2 what they say (N s, logs/short/02-report.out)",
    ]
    assert "\r" not in done.stdout + done.stderr
    assert "4 verdicts (4 new)" in (place / "logs/short/01-judge_likelihood.out").read_text()
    made = done.stdout.partition("== what was made\n")[2].partition("\n\n")[0]
    assert made.splitlines() == [
        "short/reports/sample/report.html  the report",
        "short/verdicts/sample             the verdicts",
    ]
    for path in SHORT["leaves"]["study"]:
        assert (place / path).exists()
    # What a library prints, here transformers as it loads the weights, is in the log alone.
    assert "Loading weights" in (place / "logs/short/01-judge_likelihood.log").read_text()
    again = subprocess.run(command, **options)
    assert again.returncode == 0, again.stderr
    assert (place / "short/verdicts/sample/verdicts.jsonl").read_text().count("\n") == 4


def test_the_stand_in_of_the_base_can_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal of the demo or of the small study trains it; their YAMLs name no chat template."""
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from doubles.stand_ins import stand_in
    from study.files import read_lists

    (tmp_path / "src").symlink_to(ROOT / "src")
    base = yaml.safe_load((ROOT / RUN / "stage1.yaml").read_text())["model_name_or_path"]
    stand_in(read_lists(ROOT / "recipes/runs/demo", ROOT).brings[base], tmp_path)
    done = run_recipe("check_base", "--model", tmp_path / base)
    assert done.returncode == 0, done.stderr
