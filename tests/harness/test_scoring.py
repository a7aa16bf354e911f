"""`harness.scoring`: an answer without a valid verdict is no score."""

import json
import math

import pytest

from automedeval.harness.scoring import inspect_text, scored_answers
from automedeval.records import Case, RecordError, Response, Verdict


def case(number: int, **models: str) -> Case:
    place = {"harness_id": str(number), "harness_epoch": 1}
    return Case(f"c{number}", "A question?", tuple(Response(name, text, place) for name, text in models.items()))


CASES = [case(0, a="One.", b="Two."), case(1, a="Three.", b="Four."), case(2, b="Five.")]
VERDICTS = [
    Verdict("c0", "j", "r", (0, 1), valid=True, scores=(2, 4), expected_scores=(2.5, 4.0), rationale="So."),
    Verdict("c0", "j", "r", (1, 0), run=1, valid=False, error="cannot be read"),
    Verdict("c1", "j", "r", (0, 1), valid=False, error="cannot be read"),
]


def test_an_answer_without_a_valid_verdict_has_no_score() -> None:
    scored, answers = scored_answers(CASES, VERDICTS, "b")
    assert answers == 3
    assert [each["id"] for each in scored] == ["0", "1"], "the third case was not judged"
    assert scored[0]["value"] == 4.0, "the invalid verdict does not count"
    records = json.loads(inspect_text(scored))
    explanation = "So.\n\n1 of 2 verdicts give no score: cannot be read"
    assert (records[0]["metadata"], records[0]["explanation"]) == ({"verdicts": 2, "valid": 1}, explanation)
    assert math.isnan(records[1]["value"])
    assert records[1]["metadata"]["unscored_reason"] == "grader_failed"
    assert records[1]["explanation"] == "cannot be read"


def test_a_score_is_the_mean_of_the_verdicts_that_give_one() -> None:
    more = Verdict("c0", "j", "r", (1, 0), run=2, valid=True, scores=(5, 1))
    (record,), _ = scored_answers(CASES[:1], [*VERDICTS[:2], more], "a")
    assert (record["value"], record["verdicts"], record["valid"]) == ((2.5 + 5) / 2, 3, 2)


def test_a_response_that_was_not_read_has_no_score_beside_one_that_was() -> None:
    half = Verdict("c0", "j", "r", (0, 1), valid=True, expected_scores=(None, 1.0))
    ((unread,), _), ((score,), _) = (scored_answers(CASES, [half], model) for model in "ab")
    assert math.isnan(unread["value"])
    assert "is unread" in unread["explanation"]
    assert (unread["verdicts"], unread["valid"]) == (1, 0)
    assert (score["value"], score["valid"]) == (1.0, 1)


def test_choices_are_no_scores() -> None:
    chosen = Verdict("c0", "j", "r", (0, 1), ("a", "b"), valid=True, choices={"overall": "a"})
    with pytest.raises(RecordError, match="gives no score"):
        scored_answers(CASES, [chosen], "a")
