"""The one rule for blank cells of candidates: every program that reads a table of answers asks, and takes --blank."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from doubles.agreement_study import read
from programs import ROOT, error_line, run_command, succeeded
from tables import rows_of, write_csv

from automedeval.annotation.study import read_study

MODELS = ("rowan", "larch", "alder")
TABLES = rows_of(__file__)
ROWS = TABLES["rows of a table"]
BLANK = sum(not cell.strip() for _, *cells in ROWS for cell in cells)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv("t.csv", ["question", *MODELS], ROWS)


def judged(*more):
    return run_command("judge", "t.csv", "--judge", "baseline:longer text", *more)


def standings(done):
    """Return model → number of judged answers, from the table that the command prints."""
    lines = re.findall(r"^(\w+) +[1-3]–?[1-3]? +(\d+) +[\d.]+.* [\d.]+ .*$", done.stdout, re.M)
    return {name: int(count) for name, count in lines}


def test_every_reader_of_cases_passes_the_rule_on():
    """No program can forget it: each call names it."""
    least = {"read_cases": 3, "table_of": 3, "Cases.read": 3, "Requests": 4}
    missing, readers = [], set()
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "recipes").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in least:
                readers.add(name)
                if len(node.args) < least[name] and "blank" not in [keyword.arg for keyword in node.keywords]:
                    missing.append(f"{file}:{node.lineno}")
    assert not missing
    assert readers == set(least)


@pytest.mark.parametrize("rule", ["lowest", "skip"])
def test_each_choice_counts_and_the_report_takes_the_same(table, rule):
    done = succeeded(judged("--blank", rule))
    answers = {name: [row[1 + at] for row in ROWS if row[1 + at].strip()] for at, name in enumerate(MODELS)}
    assert standings(done) == {name: len(ROWS) if rule == "lowest" else len(texts) for name, texts in answers.items()}
    verdicts = read(Path("verdicts/t-baseline-longer text/verdicts.jsonl"))
    assert len(verdicts) == (len(ROWS) if rule == "lowest" else len(ROWS) - 1), "nobody was asked the last question"
    words = sum(len(text.split()) for texts in answers.values() for text in texts)
    assert sum(sum(verdict["expected_scores"]) for verdict in verdicts) == words, "an empty answer has no word"
    assert ("left out: 1" in done.stdout) == (rule == "skip")
    (line,) = re.findall(r"^The report: automedeval (.*)$", done.stdout, re.M)
    succeeded(run_command(*shlex.split(line), "--resamples", 100, "--encoder", "none"))
    (made,) = Path("reports").iterdir()
    assert "t.csv: read: question, " in (page := (made / "report.html").read_text(encoding="utf-8"))
    assert f"; {len(ROWS)} rows, {len(ROWS)} cases; {BLANK} of 12 answers are blank" in page
    without = run_command(*shlex.split(line.replace(f"--blank {rule} ", "")))
    assert f"{BLANK} of 12 answers are blank" in error_line(without)
    (study,) = Path("reports").glob("*/rate-*.yaml")
    shown = [len(case.responses) for case in read_study(str(study)).cases.values()]
    assert shown == [len(each["order"]) for each in verdicts]
    other = {"lowest": "skip", "skip": "lowest"}[rule]
    assert "changed after 'baseline:longer text' judged it" in error_line(judged("--blank", other))


COMMANDS = TABLES["test_a_program_asks_before_it_writes"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_asks_before_it_writes(table, tmp_path, name):
    words = COMMANDS[name].split()
    line = error_line(run_command(name, *words))
    assert f"t.csv: {BLANK} of 12 answers are blank (rowan 2, alder 2, larch 1)" in line
    assert "--blank lowest" in line
    assert "--blank skip" in line
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert "answers are blank" not in run_command(name, *words, "--blank", "skip").stderr
