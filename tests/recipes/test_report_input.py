"""`automedeval report` on bad input: one readable line, exit status 1, nothing written."""

import json
import re

import pytest
from doubles import agreement_study as sample
from doubles.agreement_study import CASES, FAST, RATINGS, agreeing_verdicts, meta_evaluate, read, write
from programs import error_line, flags, succeeded
from tables import rows_of

ROWS = rows_of(__file__)

CASE = read(CASES)[0]
GOOD = sample.verdict(CASE, [1, 2, 3])
OWN = {name: [1, 2, 3] for name in ("relevancy", "knowledge_correctness", "fluency")}
SCORED = GOOD | {"rubric": "automedeval_guided@1"}
LINES = {"scores": GOOD, "criteria": SCORED, "pair": sample.pairwise_verdicts()[0]}
HUGE = 10**400


def refused(tmp_path, verdicts, message, *more):
    """Check that the verdicts, lines or the text of a file, are refused in one line, and that nothing is written."""
    file = tmp_path / "verdicts.jsonl"
    file.write_text(verdicts) if isinstance(verdicts, str) else write(file, verdicts)
    done = meta_evaluate("--verdicts", file, "--cases", CASES, "--output", tmp_path / "out", *FAST, *more)
    assert re.search(message, error_line(done))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "change", "message"), ROWS["test_bad_verdicts_get_one_line"])
def test_bad_verdicts_get_one_line(kind, change, message, tmp_path):
    if kind == "criteria":
        change = {"criterion_scores": {name: each for name, each in (OWN | change).items() if each is not None}}
    refused(tmp_path, [LINES[kind] | change], message)


SILENT = {
    "verdicts.jsonl:2: the verdict of echo on case .* is at .*:1 already": [GOOD, GOOD],
    "verdicts.jsonl:1: not JSON": "{",
    "no verdict on any case": "",
    "must be a number from": [GOOD | {"rubric": "own@1", "scores": [1, 2, HUGE]}],
}


@pytest.mark.parametrize("message", SILENT)
def test_files_of_verdicts_that_say_nothing_get_one_line(message, tmp_path):
    refused(tmp_path, SILENT[message], message)


RATINGS_THAT_FAIL = [*ROWS["test_bad_ratings_get_one_line"], ({"score": HUGE}, "a number from")]


@pytest.mark.parametrize(("change", "message"), RATINGS_THAT_FAIL)
def test_bad_ratings_get_one_line(change, message, tmp_path):
    first = read(RATINGS)[0]
    ratings = write(tmp_path / "ratings.jsonl", [first | change] if change else [first, first])
    refused(tmp_path, [GOOD], message, "--ratings", ratings)


@pytest.mark.parametrize(("more", "message"), ROWS["test_bad_arguments_get_one_line"])
def test_bad_arguments_get_one_line(more, message, tmp_path):
    words = [str(RATINGS) if word == "RATINGS" else word for word in more]
    refused(tmp_path, agreeing_verdicts(), message, *words)


def test_a_folder_in_the_way_gets_one_line(tmp_path):
    file = write(tmp_path / "v.jsonl", [GOOD])
    (tmp_path / "out").write_text("in the way")
    assert "out" in error_line(meta_evaluate(*flags(verdicts=file, cases=CASES, output=tmp_path / "out"), *FAST))


@pytest.mark.parametrize("name", ["random", "people", "longer text", "physicians"])
def test_names_of_the_table_itself_are_taken(name, tmp_path):
    refused(tmp_path, agreeing_verdicts(name), f"a judge cannot be called {name!r}")


def test_an_equals_sign_may_be_in_the_path_and_in_the_name_of_a_judge(tmp_path):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    file = write(folder / "verdicts.jsonl", agreeing_verdicts())
    names = {file: "echo", folder: "echo", f"A judge={file}": "A judge", f"lr=0.1={folder}": "lr=0.1"}
    for argument, name in names.items():
        options = (*flags(cases=CASES, verdicts=argument, ratings=RATINGS, output=tmp_path / "report"), *FAST)
        succeeded(meta_evaluate(*options))
        assert next(iter(json.loads((tmp_path / "report" / "agreement.json").read_text())["judges"])) == name
