"""`automedeval check` by its command, without a model: numbers beside the reference or books."""

import re
from collections import defaultdict
from pathlib import Path

from doubles.agreement_study import case_of
from factories import Json, read, read_json, write
from programs import (
    APPEND,
    ENCODER,
    SAMPLE,
    failed,
    needs_encoder,
    run_command,
    run_recipe,
    stopped,
    succeeded,
    told,
)
from tables import each_row, holds_all, read_csv, rows_of

ROWS = rows_of(__file__)
CASES = ROWS["cases"]


def case(number: int, reference: str | None, **answers: str) -> Json:
    return case_of(f"c{number}", "How do I take it?", answers, reference=reference)


def check(cases: list[dict] | Path, output: Path, **more: object):
    file = cases if isinstance(cases, Path) else write(output.with_suffix(".jsonl"), cases)
    return run_command("check", file, output=output, **more)


def marked(output: Path) -> dict[tuple[str, str], list[list]]:
    """Return, of each answer with a mark, the numbers of the answer and of the evidence, and the factor between them."""
    marks = defaultdict(list)
    for claim in read(output / "claims.jsonl"):
        of_answer = claim["case_id"], claim["model"]
        for mark in claim["differs"]:
            numbers = [mark["sentence"][1], mark["passage"][1], mark["factor"]]
            marks[of_answer].append(numbers)
    return marks


def of_answers(cases: list[dict], key: str) -> dict[tuple[str, str], str]:
    """Return what each answer, by its case and model, has under a key."""
    found = {}
    for case in cases:
        for answer in case["responses"]:
            found[case["id"], answer["model"]] = answer[key]
    return found


def test_it_shows_numbers_that_differ_and_can_fail_a_build(tmp_path):
    out = tmp_path / "out"
    done = check(CASES, out, fail_if="differs")
    assert done.returncode == 3, done.stderr
    holds_all(done.stdout, ROWS["said"])
    marks = marked(out)
    assert marks == {("c1", "wrong"): ROWS["marks of c1"], ("c2", "wrong"): ROWS["marks of c2"]}
    right = [case | {"responses": case["responses"][:1]} for case in CASES]
    succeeded(check(right, tmp_path / "two", fail_if="differs"))


def test_every_file_is_written(tmp_path):
    out = tmp_path / "out"
    check(CASES, out)
    texts = of_answers(CASES, "text")
    for claim in read(out / "claims.jsonl"):
        for mark in claim["differs"]:
            text = texts[claim["case_id"], claim["model"]]
            assert text[mark["start"] : mark["end"]] == mark["sentence"][1]
    page = (out / "check.html").read_text()
    assert "Not looked at" in page
    assert "| wrong | 3 | 2 of 2: 1.00" in (out / "check.md").read_text()
    shown = ["50 mg instead of 5 mg", "every day instead of once a week", "12 g instead of 4 g"]
    assert re.findall("<b>(.*? instead of .*?)</b>", page) == shown
    rows = read_csv(out / "claims.csv")
    assert [row["number"] for row in rows] == ["50 mg", "every day", "12 g"]
    assert rows[0].items() >= ROWS["first row"].items()
    assert read_json(out / "check.json")["models"]["wrong"]["differing_answers"]["value"] == 1


def test_a_stopped_check_goes_on(tmp_path):
    out = tmp_path / "out"
    claims = out / "claims.jsonl"
    check(CASES, out)
    whole = read(claims)
    # Answers of earlier versions are moved, and compared again.
    old = [claim | {"case_digest": "other", "settings": "7b9ed6f70875"} for claim in whole]
    write(claims, old)
    with stopped(APPEND, 9):
        check(CASES, out)
    assert read(claims) == whole[:2]
    assert read(out / "replaced-claims.jsonl") == old
    succeeded(check(CASES, out))
    assert read(claims) == whole


def test_two_bots_show_both_sentences_of_the_dangers_that_are_numbers(tmp_path):
    done = check(Path("two_bots"), tmp_path / "out")
    doses = "600 mg instead of between 100 and 200 mg", "12 g instead of 4 g"
    told(done, *doses, "every morning instead of once-a-week")
    kinds = of_answers(read(SAMPLE / "two_bots.jsonl"), "kind")
    of_marked = [kinds[place] for place in marked(tmp_path / "out")]
    assert of_marked == ["dangerous_error"] * 3


def test_of_a_table_with_an_answer_a_row_the_row_is_that_of_the_answer(tmp_path):
    table = tmp_path / "long.csv"
    head = "question,reference,model,answer\n"
    about = "How much of it for an adult?,Take 400 mg."
    table.write_text(f"{head}{about},a,Take 400 mg.\n{about},b,Take 5 g.\n")
    succeeded(check(table, tmp_path / "out"))
    assert [row["row"] for row in read_csv(tmp_path / "out/claims.csv")] == ["2"]
    assert "row 2" in (tmp_path / "out/check.html").read_text()


@needs_encoder
def test_books_are_compared_where_a_passage_is_near(tmp_path):
    book = tmp_path / "book.md"
    store = tmp_path / "store"
    book.write_text(
        "# Drugs\n\nMethotrexate tablets are taken once a week, 50 mg of another drug.\n"
    )
    succeeded(run_recipe("build_store", books=book, encoder=ENCODER, store=store))
    wrong = "Take methotrexate tablets every day."
    cases = [
        case(1, None, right="Rest well.", wrong=wrong),
        case(2, "Take 5 mg.", wrong=f"{wrong} 50 mg."),
    ]
    succeeded(check(cases, tmp_path / "out", evidence=store, encoder=ENCODER))
    marks = marked(tmp_path / "out")
    by_book = ["every day", "once a week", 7.0]
    assert list(marks.values()) == [[by_book], [["50 mg", "5 mg", 10.0], by_book]]
    *_, claim = read(tmp_path / "out/claims.jsonl")
    assert [mark["source"] for mark in claim["differs"]] == ["reference", "Drugs"]


@each_row("more, said")
def test_bad_input_gets_one_line(more, said, tmp_path):
    cases = CASES if more else CASES[2:]  # without a reference, and not in English
    done = check(cases, tmp_path / "out", **more)
    failed(done, said)
    assert not (tmp_path / "out/check.html").exists()
