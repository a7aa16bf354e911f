"""`harness.scoring`: an answer without a valid verdict is no score."""

import math

from automedeval.harness.scoring import score_of
from automedeval.records import Verdict

VERDICTS = [
    Verdict("c0", "j", "r", (0, 1), valid=True, scores=(2, 4), expected_scores=(2.5, 4.0), rationale="So."),
    Verdict("c0", "j", "r", (1, 0), run=1, valid=False, error="cannot be read"),
    Verdict("c1", "j", "r", (0, 1), valid=False, error="cannot be read"),
]


def test_a_score_is_the_mean_of_the_verdicts_that_give_one() -> None:
    more = Verdict("c0", "j", "r", (1, 0), run=2, valid=True, scores=(5, 1))
    scored, unscored = score_of([*VERDICTS[:2], more], 0), score_of(VERDICTS[2:], 1)
    assert scored["value"] == (2.5 + 5) / 2, "the invalid verdict does not count"
    assert scored["explanation"] == "So.\n\n1 of 3 verdicts give no score: cannot be read"
    assert (scored["verdicts"], scored["valid"]) == (3, 2)
    assert math.isnan(unscored["value"])
    assert (unscored["verdicts"], unscored["valid"], unscored["explanation"]) == (1, 0, "cannot be read")


def test_a_response_that_was_not_read_has_no_score_beside_one_that_was() -> None:
    half = Verdict("c0", "j", "r", (0, 1), valid=True, expected_scores=(None, 1.0))
    unread, score = (score_of([half], index) for index in (0, 1))
    assert math.isnan(unread["value"])
    assert "is unread" in unread["explanation"]
    assert (unread["verdicts"], unread["valid"]) == (1, 0)
    assert (score["value"], score["valid"]) == (1.0, 1)
