"""The score of a checklist, beside a loop over its criteria that enumerates what the unread ones may be."""

import random
from itertools import product

import pytest

from automedeval.stats.checklist import checklist_score


def naive(points, met):
    """Return the published score of criteria that are all read: None without positive points."""
    got = sum(worth for worth, is_met in zip(points, met) if is_met)
    best = sum(worth for worth in points if worth > 0)
    return got / best if best else None


def random_cases():
    rng = random.Random(0)
    for _ in range(200):
        size = rng.randint(1, 6)
        points = rng.choices([-10, -3, -0.5, 1, 2, 8], k=size)
        met = rng.choices([True, False, None], k=size)
        yield points, met


@pytest.mark.parametrize(("points", "met"), list(random_cases()))
def test_the_score_is_the_published_one_and_its_bounds_are_those_of_all_possible_readings(
    points, met
):
    score = checklist_score(points, met)
    possible = ((each,) if each is not None else (True, False) for each in met)
    readings = [naive(points, each) for each in product(*possible)]
    if readings[0] is None:
        assert score == (None, None, None)
        return
    assert score.lowest == pytest.approx(min(readings))
    assert score.highest == pytest.approx(max(readings))
    assert score.score == (None if None in met else pytest.approx(naive(points, met)))
