"""A user's own table through the commands: its columns, its blank cells, a judge by its bare name, and the table back."""

import re
import shlex
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from factories import read, read_json, verdicts_in
from programs import failed, run_command, succeeded, told
from tables import each_row, read_csv, rows_of, write_csv

from automedeval.annotation.study import read_study
from automedeval.records import Case
from automedeval.records.tables.cases import read_cases

TABLES = rows_of(__file__)
TABLE = TABLES["table"]
BASELINE = "baseline:longer text"
judge = partial(run_command, "judge", blank="lowest", output="out")


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Return a table of three questions in an empty folder, where the commands run."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.csv"
    file.write_text(TABLE, encoding="utf-8")
    return file


@each_row("name")
def test_a_checkpoint_in_the_users_cache_answers_to_its_name(
    table, tmp_path, tiny_model, monkeypatch, name
):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    place = tmp_path / "home/automedeval/models/tiny"
    place.parent.mkdir(parents=True)
    place.symlink_to(tiny_model)
    run = partial(judge, "mine.csv", judge=name, device="cpu")
    succeeded(run(max_new_tokens=4))
    judges = {verdict.judge for verdict in verdicts_in(Path("out"))}
    assert judges == {"likelihood:tiny" if ":" in name else "tiny"}
    place.unlink()
    failed(run(), "tiny")


@pytest.mark.parametrize("prepared", [False, True])
def test_verdicts_have_row_and_question_and_an_id_in_words(table, prepared):
    if prepared:
        succeeded(run_command("prepare", "mine.csv", blank="lowest", output="cases"))
    succeeded(judge("cases/cases.jsonl" if prepared else "mine.csv", judge=BASELINE))
    verdicts = sorted(read(Path("out/verdicts.jsonl")), key=lambda verdict: verdict["row"])
    about = [
        (each["row"], each["question"], each["case_id"].rpartition("-")[0]) for each in verdicts
    ]
    assert about == [
        (1, "May I walk?", "may-i-walk"),
        (2, "May I fly?", "may-i-fly"),
        (3, "May I run?", "may-i-run"),
    ]


@pytest.mark.parametrize("wide", [True, False])
def test_each_answer_of_the_table_has_its_row_and_its_score(table, wide):
    if not wide:
        table.write_text(TABLES["a long table"])
    own = [row for row in read_csv("mine.csv") if row["question"]]
    succeeded(judge("mine.csv", judge=BASELINE))
    files = {"verdicts": "out", "cases": "mine.csv", "output": "back.csv"}
    succeeded(run_command("export", **files, blank="lowest", to="csv"))
    back = read_csv("back.csv")
    assert len(back) == (6 if wide else 3)
    for answer in back:
        row = own[int(answer["row"]) - 1]
        text = row[answer["model"]] if wide else row["answer"]
        assert answer["question"] == row["question"]
        assert answer["answer"].removeprefix("'") == text, "no cell is run"
        assert answer["empty"] == str(not text)
        assert float(answer["expected_score"]) == len(text.split())  # as many points as words
    if not wide:
        rows = {each["case_id"]: each.get("row") for each in read(Path("out/verdicts.jsonl"))}
        assert rows == {"1": None, "2": 2}, "a verdict on the answers of two rows has none"
        succeeded(run_command("export", verdicts="out", to="csv", output="back.csv"))
        assert [each["row"] for each in read_csv("back.csv")] == ["", "", "2"]


COLUMNS = ("question=Frage", "reference=Gold", "Bot A", "Bot B")


@pytest.fixture
def named_columns(table):
    """Write a table whose columns say nothing by their names; return its rows."""
    names, *rows = TABLES["columns that say nothing"]
    write_csv("t.csv", names, rows)
    return rows


def judged(*words: str, **options: str):
    return run_command("judge", "t.csv", *words, judge=BASELINE, **options)


def reported(printed: str, **options: object):
    """Run the report that a command names."""
    (line,) = re.findall(r"(?m)^The report: automedeval (.*)$", printed)
    return run_command(*shlex.split(line), **options)


def shown_to_people() -> list[Case]:
    (study,) = Path().glob("*/*/rate-*.yaml")
    return list(read_study(str(study)).cases.values())


def test_named_columns_are_read_alike_by_every_command(named_columns):
    unclear = "t.csv: no column is called question"
    failed(judged(), unclear)
    printed = told(judged(columns=COLUMNS, output="v"), "not read: tie")
    for name, words in TABLES["commands on named columns"].items():
        if name in ("export", "report"):  # they read the columns in the record of the run
            succeeded(run_command(*words.split()))
        else:
            failed(run_command(*words.split()), unclear)
        assert run_command(*words.split(), columns=COLUMNS).returncode in (0, 3)
    words = TABLES["commands on named columns"]["export"].split()
    failed(run_command(*words, columns=("question=Frage", "Bot B")), "v/verdicts.jsonl:1")
    assert (
        "--columns question=Frage"
        in succeeded(reported(printed, resamples=100, encoder="none")).stdout
    )
    prepared = [case.digest for case in read_cases("p/cases.jsonl")]
    Path("t.csv").write_text("Frage\nAnother one?\n")  # the study has its own copy
    assert [case.digest for case in shown_to_people()] == prepared
    assert list(read_json(Path("c/check.json"))["models"]) == ["Bot A", "Bot B"]
    assert {row["question"] for row in read_csv("e.csv")} == {row[0] for row in named_columns}
    done = run_command("check", "p/cases.jsonl", columns=COLUMNS)
    failed(done, "p/cases.jsonl: --columns are those of a table, and this file has cases")


def test_columns_are_those_of_the_run_on_this_very_file_whatever_was_judged_since(named_columns):
    printed = succeeded(judged(columns=COLUMNS, output="v")).stdout
    write_csv("u.csv", ["Gold", "Bot C"], [["Is rest enough?", "Rest and drink."]])
    other = ("question=Gold", "Bot C")
    succeeded(run_command("judge", "u.csv", judge=BASELINE, columns=other, output="v"))
    succeeded(reported(printed, resamples=100, encoder="none"))


@each_row("more, fault")
@pytest.mark.usefixtures("named_columns")
def test_bad_columns_are_one_line(more, fault):
    failed(judged(*more, output="v"), fault)
    assert not Path("v").exists()


MODELS = ("rowan", "larch", "alder")
BLANKS = TABLES["rows of a table"]
BLANK = sum(not cell.strip() for _, *cells in BLANKS for cell in cells)


@pytest.fixture
def with_blanks(table):
    table.unlink()
    write_csv("t.csv", ["question", *MODELS], BLANKS)


def standings(done):
    """Return model → number of judged answers, from the table that the command prints."""
    lines = re.findall(r"(?m)^(\w+) +[1-3]–?[1-3]? +(\d+) +[\d.]+.* [\d.]+ .*$", done.stdout)
    return {name: int(count) for name, count in lines}


@each_row("rule, other")
def test_each_choice_counts_and_the_report_takes_the_same(with_blanks, rule, other):
    done = succeeded(judged(blank=rule))
    skips = rule == "skip"
    rows = len(BLANKS)
    questions, *columns = zip(*BLANKS)
    texts = [[text for text in column if text.strip()] for column in columns]
    counts = [len(given) if skips else rows for given in texts]
    assert standings(done) == dict(zip(MODELS, counts))
    verdicts = read(Path("verdicts/t-baseline-longer text/verdicts.jsonl"))
    # Nobody was asked the last question.
    assert len(verdicts) == rows - skips
    words = sum(len(text.split()) for given in texts for text in given)
    given = sum(sum(verdict["expected_scores"]) for verdict in verdicts)
    # An empty answer has no word.
    assert given == words
    assert ("left out: 1" in done.stdout) == skips
    succeeded(reported(done.stdout, resamples=100, encoder="none"))
    rated = product(questions, MODELS, ["ann"], [3])
    write_csv("r.csv", ["question", "model", "rater", "score"], rated)
    succeeded(reported(done.stdout, ratings="r.csv", encoder="none"))
    (made,) = Path("reports").iterdir()
    page = (made / "report.html").read_text(encoding="utf-8")
    assert "t.csv: read: question, " in page
    assert f"; rows: {rows}, cases: {rows}; {BLANK} of 12 answers are blank" in page
    assert (f"ratings: {BLANK} left out, of" in page) == skips
    without = reported(done.stdout.replace(f"--blank {rule} ", ""))
    failed(without, f"{BLANK} of 12 answers are blank")
    shown = [len(case.responses) for case in shown_to_people()]
    assert shown == [len(verdict["order"]) for verdict in verdicts]
    told(judged(blank=other), "cases changed in texts or answers: ")


@each_row("command")
def test_a_program_asks_before_it_writes(with_blanks, tmp_path, command):
    words = command.split()
    failed(
        run_command(*words),
        f"t.csv: {BLANK} of 12 answers are blank (rowan 2, alder 2, larch 1)",
        "--blank lowest (in Python and YAML: blank) if ",
        ", or skip if ",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert "answers are blank" not in run_command(*words, blank="skip").stderr
