"""Topics: two subjects are told apart, the same seed tells the same, and too little tells nothing."""

import random

import pytest

from automedeval.records import Case
from automedeval.study.dataset.topics import topics

HEART = ["heart", "pulse", "artery", "pressure", "aspirin", "chest", "vein", "cholesterol"]
SKIN = ["rash", "itch", "cream", "eczema", "blister", "sunburn", "acne", "mole"]


def cases(number: int) -> list[Case]:
    """Return cases about the heart, each followed by one about the skin that has a third of the words."""
    rng = random.Random(0)

    def text(at):
        return "What is the " + " ".join(
            rng.choices(SKIN, k=10) if at % 2 else rng.choices(HEART, k=30)
        )

    return [Case(str(at), text(at), (), text(at)) for at in range(number)]


def test_subjects_are_topics_with_their_shares_the_largest_first():
    first, second = topics(cases(60), 2)
    assert set(first["words"][:8]) == set(HEART)
    assert set(second["words"][:8]) == set(SKIN)
    assert first["share"] == pytest.approx(0.75, abs=0.03)
    assert first["share"] + second["share"] == pytest.approx(1, abs=1e-4)


def test_too_few_cases_or_words_have_no_topics():
    assert topics(cases(3), 2) == []
    assert topics([Case(str(at), "is it", (), None) for at in range(20)], 2) == []
