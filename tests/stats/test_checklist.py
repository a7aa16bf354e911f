"""The score of a checklist, beside a loop over its criteria that enumerates what the unread ones may be."""

import itertools
import random

import pytest

from automedeval.stats.checklist import checklist_score


def naive(points, met):
    """Return the published score of criteria that are all read: None without positive points."""
    got, best = 0.0, 0.0
    for worth, is_met in zip(points, met):
        got += worth if is_met else 0.0
        best += worth if worth > 0 else 0.0
    return got / best if best else None


def random_cases(count=200):
    rng = random.Random(0)
    for _ in range(count):
        size = rng.randint(1, 6)
        points = [rng.choice([-10, -3, -0.5, 1, 2, 8]) for _ in range(size)]
        yield points, [rng.choice([True, False, None]) for _ in range(size)]


@pytest.mark.parametrize(("points", "met"), list(random_cases()))
def test_the_score_is_the_published_one_and_its_bounds_are_those_of_all_possible_readings(
    points, met
):
    score = checklist_score(points, met)
    possible = ((each,) if each is not None else (True, False) for each in met)
    readings = [naive(points, each) for each in itertools.product(*possible)]
    if readings[0] is None:
        assert score == (None, None, None)
        return
    assert score.lowest == pytest.approx(min(readings))
    assert score.highest == pytest.approx(max(readings))
    assert score.score == pytest.approx(naive(points, [bool(each) for each in met]))
    assert score.lowest <= score.score <= score.highest
