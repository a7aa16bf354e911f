"""recipes/report.py on bad input: one readable line, exit status 1, nothing written."""

import json
import re

import pytest
from doubles.agreement_study import (
    CASES,
    FAST,
    RATINGS,
    agreeing_verdicts,
    meta_evaluate,
    pairwise_verdicts,
    read,
    verdict,
    write,
)
from programs import error_line

CASE = read(CASES)[0]
GOOD = verdict(CASE, [1, 2, 3])
OWN = {name: [1, 2, 3] for name in ("relevancy", "knowledge_correctness", "fluency")}
SCORED = GOOD | {"rubric": "automedeval_guided@1"}
BAD_VERDICTS = {
    "duplicate": ([GOOD, GOOD], "verdicts.jsonl:2: the verdict of echo on case .* is at .*:1 already"),
    "off the scale": ([GOOD | {"scores": [1, 2, 6]}], "6 is off the scale of automedeval@1, 1 to 5"),
    "wrong number": ([GOOD | {"scores": [1, 2]}], "2 'scores' for the 3 responses"),
    "wrong order": ([GOOD | {"order": [0, 1, 7]}], "does not fit the 3 responses"),
    "other cases": ([GOOD | {"case_id": "elsewhere"}], "no verdict on any case"),
    "changed case": ([GOOD | {"case_digest": "0123456789ab"}], "the texts of case .* changed after 'echo' judged it"),
    "not JSON": ("{", "verdicts.jsonl:1: not JSON"),
    "empty": ("", "no verdict on any case"),
    "neither scores nor choices": ([GOOD | {"scores": None, "expected_scores": None}], "neither scores nor choices"),
    "a score that was not shown": ([GOOD | {"order": [0, 1]}], "a response that 'order' does not show"),
    "a criterion without scores": (
        [SCORED | {"criterion_scores": {"relevancy": [1, 2, 3]}}],
        "must have the criteria of",
    ),
    "too few scores on a criterion": (
        [SCORED | {"criterion_scores": OWN | {"fluency": [1]}}],
        "1 'criterion_scores.fluency' for the 3",
    ),
    "no list of scores on a criterion": (
        [SCORED | {"criterion_scores": OWN | {"fluency": 4}}],
        "int 'criterion_scores.fluency' for",
    ),
    "a score on a criterion off the scale": (
        [SCORED | {"criterion_scores": OWN | {"fluency": [1, 2, 6]}}],
        "6 is off the scale",
    ),
    "a text for a score on a criterion": (
        [SCORED | {"criterion_scores": OWN | {"fluency": [1, 2, "3"]}}],
        "'criterion_scores.fluency' must hold numbers, not '3'",
    ),
    "huge": ([GOOD | {"rubric": "own@1", "scores": [1, 2, 10**400]}], "must be a number from"),
    "a pair of one": ([pairwise_verdicts()[0] | {"pair": ["rowan-7b", "rowan-7b"]}], "does not name the two models"),
    "an unknown criterion": (
        [pairwise_verdicts()[0] | {"choices": {"nonsense": "tie"}}],
        "has no criterion 'nonsense'; it has bias",
    ),
    "a strange choice": (
        [pairwise_verdicts()[0] | {"choices": {"correctness": "nobody"}}],
        "'correctness' must be one of",
    ),
}


@pytest.mark.parametrize("name", BAD_VERDICTS)
def test_bad_verdicts_get_one_line(name, tmp_path):
    content, message = BAD_VERDICTS[name]
    file = tmp_path / "verdicts.jsonl"
    file.write_text(content) if isinstance(content, str) else write(file, content)
    done = meta_evaluate("--verdicts", file, "--cases", CASES, "--output", tmp_path / "out", *FAST)
    assert re.search(message, error_line(done))
    assert not (tmp_path / "out").exists()


RATING = read(RATINGS)[0]
BAD_RATINGS = {
    "unknown model": ([RATING | {"model": "nobody"}], "has no response of 'nobody'"),
    "unknown cases": ([RATING | {"case_id": "elsewhere"}], "no rating of any case"),
    "twice": ([RATING, RATING], ":2: 'simulated-1' rated .* before"),
    "huge": ([RATING | {"score": 10**400}], "must be a number from"),
    "not a number": ([RATING | {"score": "five"}], "'score' must be int or float"),
}


@pytest.mark.parametrize("name", BAD_RATINGS)
def test_bad_ratings_get_one_line(name, tmp_path):
    content, message = BAD_RATINGS[name]
    file, verdicts = write(tmp_path / "ratings.jsonl", content), write(tmp_path / "v.jsonl", [GOOD])
    done = meta_evaluate(
        "--verdicts", verdicts, "--cases", CASES, "--ratings", file, "--output", tmp_path / "out", *FAST
    )
    assert re.search(message, error_line(done))


def test_bad_arguments_get_one_line(tmp_path):
    file = write(tmp_path / "v.jsonl", [GOOD])
    common = ("--cases", CASES, "--output", tmp_path / "out")
    assert "--resamples must be at least 100" in error_line(
        meta_evaluate("--verdicts", file, *common, "--resamples", 5)
    )
    assert "No such file" in error_line(meta_evaluate("--verdicts", tmp_path / "nothing.jsonl", *common))
    # Two words with a slash are a folder that is not there: only cases may lie on the Hub, which hears of nothing else.
    done = meta_evaluate("--verdicts", "verdicts/nowhere", *common)
    assert error_line(done) == "error: verdicts/nowhere: No such file or directory"
    assert "huggingface" not in done.stderr
    (tmp_path / "out").write_text("in the way")
    assert "out" in error_line(meta_evaluate("--verdicts", file, *common, *FAST))


def test_an_equals_sign_may_be_in_the_path_and_in_the_name_of_a_judge(tmp_path):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    file = write(folder / "verdicts.jsonl", agreeing_verdicts())
    for argument, name in (
        (file, "echo"),
        (folder, "echo"),
        (f"A judge={file}", "A judge"),
        (f"lr=0.1={folder}", "lr=0.1"),
    ):
        options = (
            "--cases",
            CASES,
            "--verdicts",
            argument,
            "--ratings",
            RATINGS,
            "--output",
            tmp_path / "report",
            *FAST,
        )
        done = meta_evaluate(*options)
        assert done.returncode == 0, done.stderr
        assert next(iter(json.loads((tmp_path / "report" / "agreement.json").read_text())["judges"])) == name
