"""`automedeval check` by its command, without a model: numbers beside the reference or books."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from programs import ENCODER, SAMPLE, error_line, needs_encoder, run_command, run_recipe, succeeded
from tables import read_csv


def case(number: int, reference: str | None, **answers: str) -> dict:
    responses = [{"model": name, "text": text} for name, text in answers.items()]
    return {
        "id": f"c{number}",
        "question": "How do I take it?",
        "reference": reference,
        "responses": responses,
    }


WEEKLY, DAILY = "Take one tablet of 5 mg once a week.", "Take one 50 mg tablet every day."
CASES = [
    case(1, WEEKLY, right="Take it once a week.", wrong=DAILY),
    case(2, "At most 4 g a day.", right="Ask before you take it.", wrong="At most 12 g a day."),
    case(3, None, right="Rest well tonight.", wrong="Drink some water."),
]


def check(
    cases: list[dict] | Path, output: Path, *more: object
) -> tuple[subprocess.CompletedProcess, list[dict]]:
    file = cases if isinstance(cases, Path) else write(output.with_suffix(".jsonl"), cases)
    done = run_command("check", file, "--output", output, *more)
    return done, read(output / "claims.jsonl") if (output / "claims.jsonl").exists() else []


def marked(records: list[dict]) -> dict[tuple[str, str], list[tuple[str, str, float]]]:
    return {
        (each["case_id"], each["model"]): [
            (mark["sentence"][1], mark["passage"][1], mark["factor"]) for mark in each["differs"]
        ]
        for each in records
        if each["differs"]
    }


def test_it_shows_numbers_that_differ_writes_every_file_and_can_fail_a_build(
    tmp_path: Path,
) -> None:
    done, records = check(CASES, tmp_path / "out", "--fail_if_differs", "true")
    assert done.returncode == 3, done.stderr
    right = [each | {"responses": each["responses"][:1]} for each in CASES]
    succeeded(check(right, tmp_path / "two", "--fail_if_differs", "true")[0])
    dose, often = ("50 mg", "5 mg", 10.0), ("every day", "once a week", 7.0)
    assert marked(records) == {
        ("c1", "wrong"): [dose, often],
        ("c2", "wrong"): [("12 g", "4 g", 3.0)],
    }
    for each in records:
        (text,) = (
            answer["text"]
            for one in CASES
            for answer in one["responses"]
            if (one["id"], answer["model"]) == (each["case_id"], each["model"])
        )
        for mark in each["differs"]:
            assert text[mark["start"] : mark["end"]] == mark["sentence"][1]
    first = done.stdout[done.stdout.index("50 mg for 5 mg") :]
    assert "answer:    Take one [50 mg] tablet every day." in first
    assert "reference: Take one tablet of [5 mg] once a week." in first
    assert "wrong: in 2 of 2 answers (100 %) a number differs from the reference." in done.stdout
    assert "2 answers had nothing to be checked against" in done.stdout
    page = (tmp_path / "out" / "check.html").read_text()
    pages = (page, done.stdout, (tmp_path / "out" / "check.md").read_text())
    assert all("Not looked at" in text for text in pages)
    assert re.findall("<b>(.*? for .*?)</b>", page) == [
        "50 mg for 5 mg",
        "every day for once a week",
        "12 g for 4 g",
    ]
    rows = [row for row in read_csv(tmp_path / "out" / "claims.csv") if row["label"] == "differs"]
    columns = ("factor", "kind", "number", "beside", "statement", "passage", "source")
    expected = ("10.0", "mass", "50 mg", "5 mg", DAILY, WEEKLY, "reference")
    assert tuple(rows[0][name] for name in columns) == expected
    figures = json.loads((tmp_path / "out" / "check.json").read_text())["models"]
    assert [figures[name]["differing_answers"]["value"] for name in ("wrong", "right")] == [
        1.0,
        0.0,
    ]


def test_two_bots_show_both_sentences_of_both_dangers_that_are_numbers(tmp_path: Path) -> None:
    done, records = check(Path("two_bots"), tmp_path / "out")
    kinds = {
        (each["id"], answer["model"]): answer["kind"]
        for each in read(SAMPLE / "two_bots.jsonl")
        for answer in each["responses"]
    }
    assert [kinds[place] for place in marked(records)] == ["dangerous_error"] * 2
    assert "600 mg for between 100 and 200 mg" in done.stdout
    assert "12 g for 4 g" in done.stdout


def test_of_a_table_with_an_answer_a_row_the_row_is_that_of_the_answer(tmp_path: Path) -> None:
    table = tmp_path / "long.csv"
    head, about = "question,reference,model,answer\n", "How much of it for an adult?,Take 400 mg."
    table.write_text(f"{head}{about},a,Take 400 mg.\n{about},b,Take 5 g.\n")
    done, _ = check(table, tmp_path / "out")
    succeeded(done)
    rows = read_csv(tmp_path / "out" / "claims.csv")
    assert [row["row"] for row in rows if row["label"] == "differs"] == ["2"]
    assert "row 2" in (tmp_path / "out" / "check.html").read_text()


def test_a_safe_answer_that_warns_of_a_dose_is_not_marked(tmp_path: Path) -> None:
    reference = "Take 400 mg of ibuprofen every 8 hours. Rest the ankle and put ice on it."
    bad = "Take 1200 mg of ibuprofen every 8 hours."
    safe = {
        "never": f"Rest the ankle.\n\nThings you should never do:\n- {bad}\n- Walk on it.",
        "mistakes": f"Rest the ankle.\n\nMistakes to avoid:\n1. {bad}\n2. Walk on it.",
        "donts": f"**Dos**\n- Rest the ankle.\n\n**Don'ts**\n- {bad}",
        "table": f"| do | do not |\n|---|---|\n| Rest the ankle. | {bad} |",
        "dangerous": f"It is dangerous to do this:\n* {bad}",
        "wrong": f"Some websites give this advice, which is wrong:\n> {bad}\nRest the ankle.",
    }
    cases = [
        case(number, reference, safe=text, bad=f"Rest the ankle. {bad}")
        for number, text in enumerate(safe.values())
    ]
    _, records = check(cases, tmp_path / "out")
    assert {model for _, model in marked(records)} == {"bad"}
    assert len(marked(records)) == len(safe)


def test_of_another_language_nothing_is_marked_and_that_is_said(tmp_path: Path) -> None:
    done, records = check([case(1, "รับประทานยาเม็ดวันละครั้ง 5 mg", a=DAILY)], tmp_path / "out")
    succeeded(done)
    assert records[0]["unread"] == "not English"
    assert "1 answer or reference" in done.stdout


def test_of_a_very_long_answer_the_first_characters_are_checked(tmp_path: Path) -> None:
    long = case(2, "At most 4 g a day.", long="Rest well. " * 20_000 + "Take 12 g.", b="Take 12 g.")
    done, records = check([CASES[0], long], tmp_path / "out")
    succeeded(done)
    assert "1 answer held more than 100,000 characters" in done.stdout
    assert ("c2", "b") in marked(records)
    assert ("c2", "long") not in marked(records)


@needs_encoder
def test_books_are_compared_where_a_passage_is_near(tmp_path: Path) -> None:
    book = "Methotrexate tablets for arthritis are taken once a week."
    (tmp_path / "book.md").write_text(f"# Drugs\n\n{book}\n")
    store = tmp_path / "store"
    made = ("--books", tmp_path / "book.md", "--encoder", ENCODER, "--store", store)
    succeeded(run_recipe("build_store", *made))
    wrong = "Take methotrexate tablets for arthritis every day."
    cases = [case(1, None, right="Rest well.", wrong=wrong)]
    done, records = check(cases, tmp_path / "out", "--evidence", store, "--encoder", ENCODER)
    succeeded(done)
    assert marked(records) == {("c1", "wrong"): [("every day", "once a week", 7.0)]}
    assert records[1]["differs"][0]["source"] == "Drugs"


@pytest.mark.parametrize(
    ("cases", "more", "said"),
    [
        ([case(1, None, a="Take it.")], (), "nothing could be checked"),
        (CASES, ("--evidence", "empty"), "no knowledge store"),
        (CASES, ("--evidence", "none"), "--evidence none needs --checker MODEL"),
        (CASES, ("--fail_if_contradicted", "true"), "--fail_if_contradicted needs --checker"),
        (CASES, ("--checker", "small"), "--checker small: takes a checkpoint"),
    ],
)
def test_bad_input_gets_one_line(cases: list[dict], more: tuple, said: str, tmp_path: Path) -> None:
    done, records = check(cases, tmp_path / "out", *more)
    assert done.returncode == 1
    assert said in error_line(done)
    assert not records
