"""A user's own table through the commands: its columns, its blank cells, a judge by its bare name, and the table back."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
from doubles.agreement_study import read
from programs import ROOT, error_line, run_command, succeeded
from tables import read_csv, rows_of, write_csv

from automedeval.annotation.study import read_study
from automedeval.records import read_cases

TABLES = rows_of(__file__)
TABLE = TABLES["table"]
JUDGE = ("--judge", "baseline:longer text", "--blank", "lowest", "--output", "out")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a table of three questions in an empty folder, where the commands run."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.csv"
    file.write_text(TABLE, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["tiny", "models/tiny", "likelihood:tiny"])
def test_a_checkpoint_in_the_users_cache_answers_to_its_name(
    table, tmp_path, tiny_model, monkeypatch, name
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    place = tmp_path / "home" / "automedeval" / "models" / "tiny"
    place.parent.mkdir(parents=True)
    place.symlink_to(tiny_model)
    words = ("judge", "mine.csv", "--judge", name, *JUDGE[2:], "--device", "cpu")
    succeeded(run_command(*words, "--max_new_tokens", 4))
    judges = {verdict["judge"] for verdict in read(tmp_path / "out" / "verdicts.jsonl")}
    assert judges == {"likelihood:tiny" if ":" in name else "tiny"}
    place.unlink()
    assert "tiny" in error_line(run_command(*words))


def test_one_line_says_what_is_read_of_a_table(table) -> None:
    done = run_command("judge", "mine.csv", *JUDGE)
    read_of = "read: question, bot-v1, bot-v2 (answers), reference; not read: notes, date (no text); 3 rows, 3 cases"
    assert done.stdout.splitlines()[0].startswith(f"mine.csv: {read_of}")


@pytest.mark.parametrize("prepared", [False, True])
def test_verdicts_have_row_and_question_and_an_id_in_words(table, prepared) -> None:
    if prepared:
        succeeded(run_command("prepare", "mine.csv", "--blank", "lowest", "--output", "cases"))
    succeeded(run_command("judge", "cases/cases.jsonl" if prepared else "mine.csv", *JUDGE))
    verdicts = sorted(read(Path("out/verdicts.jsonl")), key=lambda verdict: verdict["row"])
    questions = ["May I walk?", "May I fly?", "May I run?"]
    assert [(each["row"], each["question"]) for each in verdicts] == list(enumerate(questions, 1))
    words = ["-".join(each.strip("?").lower().split()) for each in questions]
    assert [each["case_id"].rpartition("-")[0] for each in verdicts] == words
    succeeded(run_command("export", "--verdicts", "out", "--to", "csv", "--output", "all.csv"))
    rows = {(row["row"], row["question"]) for row in read_csv("all.csv")}
    assert rows == {(str(each["row"]), each["question"]) for each in verdicts}


@pytest.mark.parametrize("wide", [True, False])
def test_each_answer_of_the_table_has_its_row_and_its_score(table, wide) -> None:
    if not wide:
        answers = ["1,May I walk?,a,Yes and soon.", "2,May I fly?,a,", "1,May I walk?,b,=No."]
        table.write_text("\n".join(["id,question,model,answer", *answers]))
    own = [row for row in read_csv("mine.csv") if row["question"]]
    succeeded(run_command("judge", "mine.csv", *JUDGE))
    cases = ("--cases", "mine.csv", "--blank", "lowest")
    succeeded(
        run_command("export", "--verdicts", "out", *cases, "--to", "csv", "--output", "back.csv")
    )
    back = read_csv("back.csv")
    assert len(back) == (6 if wide else 3)
    for answer in back:
        row = own[int(answer["row"]) - 1]
        text = row[answer["model"]] if wide else row["answer"]
        assert answer["question"] == row["question"]
        assert answer["answer"].removeprefix("'") == text, "no cell is run"
        assert answer["empty"] == str(not text)
        assert float(answer["expected_score"]) == len(text.split())  # as many points as words
    told = {each["case_id"]: each.get("row") for each in read(Path("out/verdicts.jsonl"))}
    assert wide or told == {"1": None, "2": 2}, "a verdict on the answers of two rows has none"


COLUMNS = ("question=Frage", "reference=Gold", "Bot A", "Bot B")
NAMES = ("Frage", "Gold", "Bot A", "Bot B", "tie")
ROWS = [
    ("Is it safe?", "Yes, with food.", "Yes.", "Yes, if you eat first.", "old"),
    ("How often?", "Twice a day.", "Daily, at noon or so.", "Twice.", "new"),
]


@pytest.fixture
def named_columns(table: Path) -> None:
    """Write a table whose columns say nothing by their names."""
    write_csv("t.csv", NAMES, ROWS)


def judged(*more: str):
    return run_command("judge", "t.csv", "--judge", "baseline:longer text", *more)


@pytest.mark.usefixtures("named_columns")
def test_named_columns_are_read_alike_by_every_command() -> None:
    assert "no column is called question" in error_line(judged())
    done = succeeded(judged("--columns", *COLUMNS, "--output", "v"))
    assert "not read: tie" in done.stdout
    for words in TABLES["commands on named columns"].values():
        line = error_line(run_command(*words.split()))
        assert "t.csv: no column is called question" in line
        assert run_command(*words.split(), "--columns", *COLUMNS).returncode in (0, 3)
    (line,) = re.findall(r"^The report: automedeval (.*)$", done.stdout, re.M)
    succeeded(run_command(*shlex.split(line), "--resamples", 100, "--encoder", "none"))
    (study,) = Path("reports").glob("*/rate-*.yaml")
    prepared = [case.digest for case in read_cases("p/cases.jsonl")]
    assert [case.digest for case in read_study(str(study)).cases.values()] == prepared
    marked = json.loads(Path("c/check.json").read_text("utf-8"))
    assert list(marked["models"]) == ["Bot A", "Bot B"]
    assert {row["question"] for row in read_csv("e.csv")} == {row[0] for row in ROWS}
    line = error_line(run_command("check", "p/cases.jsonl", "--columns", *COLUMNS))
    assert "p/cases.jsonl: --columns are those of a table, and this file has cases" in line


@pytest.mark.parametrize(("more", "fault"), TABLES["test_bad_columns_are_one_line"])
@pytest.mark.usefixtures("named_columns")
def test_bad_columns_are_one_line(more: tuple[str, ...], fault: str) -> None:
    line = error_line(
        run_command("judge", "t.csv", *more, "--judge", "baseline:longer text", "--output", "v")
    )
    assert fault in line
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
                keywords = [keyword.arg for keyword in node.keywords]
                if len(node.args) < least[name] and not {"blank", None} & {*keywords}:
                    missing.append(f"{file}:{node.lineno}")
    assert not missing
    assert readers == set(least)


@pytest.mark.parametrize("rule", ["lowest", "skip"])
def test_each_choice_counts_and_the_report_takes_the_same(with_blanks, rule):
    done = succeeded(judged("--blank", rule))
    answers = {
        name: [row[1 + at] for row in BLANKS if row[1 + at].strip()]
        for at, name in enumerate(MODELS)
    }
    assert standings(done) == {
        name: len(BLANKS) if rule == "lowest" else len(texts) for name, texts in answers.items()
    }
    verdicts = read(Path("verdicts/t-baseline-longer text/verdicts.jsonl"))
    assert len(verdicts) == (len(BLANKS) if rule == "lowest" else len(BLANKS) - 1), (
        "nobody was asked the last question"
    )
    words = sum(len(text.split()) for texts in answers.values() for text in texts)
    assert sum(sum(verdict["expected_scores"]) for verdict in verdicts) == words, (
        "an empty answer has no word"
    )
    assert ("left out: 1" in done.stdout) == (rule == "skip")
    (line,) = re.findall(r"^The report: automedeval (.*)$", done.stdout, re.M)
    succeeded(run_command(*shlex.split(line), "--resamples", 100, "--encoder", "none"))
    (made,) = Path("reports").iterdir()
    assert "t.csv: read: question, " in (page := (made / "report.html").read_text(encoding="utf-8"))
    assert f"; {len(BLANKS)} rows, {len(BLANKS)} cases; {BLANK} of 12 answers are blank" in page
    without = run_command(*shlex.split(line.replace(f"--blank {rule} ", "")))
    assert f"{BLANK} of 12 answers are blank" in error_line(without)
    (study,) = Path("reports").glob("*/rate-*.yaml")
    shown = [len(case.responses) for case in read_study(str(study)).cases.values()]
    assert shown == [len(each["order"]) for each in verdicts]
    other = {"lowest": "skip", "skip": "lowest"}[rule]
    assert "texts changed: row 2" in succeeded(judged("--blank", other)).stdout


COMMANDS = TABLES["test_a_program_asks_before_it_writes"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_asks_before_it_writes(with_blanks, tmp_path, name):
    words = COMMANDS[name].split()
    line = error_line(run_command(name, *words))
    assert f"t.csv: {BLANK} of 12 answers are blank (rowan 2, alder 2, larch 1)" in line
    assert "--blank lowest" in line
    assert "--blank skip" in line
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert "answers are blank" not in run_command(name, *words, "--blank", "skip").stderr
