"""A user's own table through the commands: a judge by its bare name, what is read, what changed, and the table back."""

import json
from pathlib import Path

import pytest
from doubles.agreement_study import read
from programs import error_line, run_command, succeeded
from tables import read_csv, rows_of

TABLE = rows_of(__file__)["table"]
JUDGE = ("--judge", "baseline:longer text", "--blank", "lowest", "--output", "out")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a table of three questions in an empty folder, where the commands run."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.csv"
    file.write_text(TABLE, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["tiny", "models/tiny", "likelihood:tiny"])
def test_a_checkpoint_in_the_users_cache_answers_to_its_name(table, tmp_path, tiny_model, monkeypatch, name) -> None:
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


def test_one_line_says_what_is_read_of_a_table_and_a_name_that_may_be_the_reference_is_asked_about(table) -> None:
    done = run_command("judge", "mine.csv", *JUDGE)
    read_of = "read: question, bot-v1, bot-v2 (answers), reference; not read: notes, date (no text); 3 rows, 3 cases"
    assert done.stdout.splitlines()[0].startswith(f"mine.csv: {read_of}")
    for name in ("ground_truth_answer", "Gold standard", "expected-output"):
        table.write_text(TABLE.replace("reference", name))
        for file in ("mine.csv", "mine.jsonl"):
            Path("mine.jsonl").write_text(json.dumps({"question": "Why?", name: "So.", "bot": "No."}) + "\n")
            message = error_line(run_command("judge", file, *JUDGE))
            assert f"{name!r} may be the reference, or a candidate's responses" in message
    said = ("--columns", f"question=question,reference={name},bot-v1,bot-v2")
    succeeded(run_command("prepare", "mine.csv", *said, "--blank", "lowest", "--output", "cases"))
    assert [case["reference"] for case in read(Path("cases/cases.jsonl"))] == ["Yes.", "No.", "Rest."]


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
def test_the_table_comes_back_with_scores_and_flags_in_its_own_order(table, wide) -> None:
    if not wide:
        answers = ["1,May I walk?,a,Yes and soon.", "2,May I fly?,a,", "1,May I walk?,b,No."]
        table.write_text("\n".join(["id,question,model,answer", *answers]))
    own = read_csv("mine.csv")
    assert run_command("judge", "mine.csv", *JUDGE).returncode == 0
    given = ("export", "--verdicts", "out", "--cases", "mine.csv", "--blank", "lowest", "--to", "csv")
    succeeded(run_command(*given, "--output", "back.csv"))
    back = read_csv("back.csv")
    if wide:
        own = [row for row in own if row["question"]]
        assert [row["bot-v1_flags"] for row in back] == ["", "empty", ""]
        naive = [len(row["bot-v2"].split()) for row in own]  # as many points as words
        assert [float(row["bot-v2_score"]) for row in back] == naive
        assert back[0]["notes"] == "'=n", "no cell is run"
        assert all(row["case_id"] for row in back)
    else:
        assert [float(row["baseline:longer text_score"]) for row in back] == [3, 0, 1]
        assert "case_id" not in back[0], "the ids are the user's"
    names = [name for name in own[0] if name != "notes"]
    assert [[row[name] for name in names] for row in back] == [[row[name] for name in names] for row in own]
    run_command(*given[:3], "--to", "csv", "--output", "all.csv")
    assert len(read_csv("all.csv")) == sum(len(verdict["order"]) for verdict in read(Path("out/verdicts.jsonl")))
    if wide:
        table.write_text(table.read_text().replace("date", "bot-v1_score"))
        message = error_line(run_command(*given, "--output", "other.csv"))
        assert "has a column 'bot-v1_score' already" in message
