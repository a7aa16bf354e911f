"""Verdicts made worse on purpose: each kind, equal shares, and never the verdict that was."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from automedeval.records import Case, Response, Verdict
from automedeval.rubrics.rationale import split_steps
from automedeval.study.dataset.corruption import KINDS, corrupt, share_line

FACT = "reduces fever within two hours"
WORDS = ["rest", "water", "aspirin", "heat", "sleep", "salt", "tea", "ice"]


def case(number: int, responses: int = 3) -> Case:
    texts = (f"Take {WORDS[(number + k) % 8]} for {number + k} days." for k in range(responses))
    shown = tuple(Response(f"m{k}", t) for k, t in enumerate(texts))
    return Case(f"c{number}", f"What helps in case {number}?", shown)


def verdict(of: Case, scores: tuple[int, ...] = (5, 2, 3), **changes) -> Verdict:
    steps = [
        f"Advises {response.text[5:-1]}, which {FACT}; earns {score}."
        for response, score in zip(of.responses, scores)
    ]
    steps = [f"It is about {of.id}.", *steps]
    lines = ["Analyze:", *(f"Step {k}: {step}" for k, step in enumerate(steps, 1))]
    known = {"rationale": "\n".join(lines), "scores": scores, "valid": True, "raw": "all"}
    known |= {"expected_scores": (1.0, 2.0, 3.0), "criterion_scores": {"fluency": list(scores)}}
    extra = {"models": of.models, "transcript": [{"role": "user", "content": "all"}]}
    order = tuple(range(len(of.responses)))
    return Verdict(of.id, "judge", "automedeval@1", order, **{**known, "extra": extra, **changes})


def pairs(kind: str, seed: int = 1) -> Iterator[tuple[Verdict, Verdict]]:
    """Return each good verdict with what a kind of corruption makes of it."""
    return zip(GOOD, corrupt(GOOD, CASES, seed, [kind]), strict=True)


CASES = {f"c{number}": case(number) for number in range(40)}
GOOD = [verdict(one) for one in CASES.values()]


def test_the_kinds_have_equal_shares():
    worse = corrupt(GOOD, CASES, seed=1)
    assert worse != corrupt(GOOD, CASES, seed=2)
    assert Counter(each.extra["corruption"] for each in worse) == dict.fromkeys(KINDS, 10)
    assert [one.case_id for one in worse] == [one.case_id for one in GOOD]
    shares = ", ".join(f"{kind}: 10" for kind in KINDS)
    assert share_line(40, worse) == f"40 verdicts → 40 corrupted ({shares}), 0 left out"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_longer_true_is_gone(kind):
    gone = {"raw": "", "expected_scores": None, "criterion_scores": None, "usage": {}}
    for good, worse in pairs(kind):
        assert (worse.rationale, worse.scores) != (good.rationale, good.scores)
        assert worse == replace(worse, **gone, valid=True)
        assert worse.extra == {"models": good.extra["models"], "corruption": kind}
        json.dumps(worse.to_dict())


def test_swapped_doctors_keep_their_scores():
    for good, worse in pairs("swapped_doctors"):
        before, after = split_steps(good.rationale), split_steps(worse.rationale)
        assert worse.scores == good.scores
        assert sorted(after.values()) == sorted(before.values())
        assert sum(before[doctor] != after[doctor] for doctor in before) == 2
        assert after[0] == before[0]


def test_doctors_of_one_answer_are_not_swapped():
    same = replace(CASES["c1"], responses=tuple(Response(f"m{k}", "Rest.") for k in range(3)))
    good = verdict(CASES["c1"])
    assert corrupt([good], {"c1": same}, seed=0, kinds=["swapped_doctors"]) == []


def test_another_cases_rationale_is_of_another_case():
    for good, worse in pairs("other_case"):
        assert f"about {good.case_id}." not in worse.rationale
        assert worse.scores == good.scores
    two = [verdict(CASES["c1"]), verdict(case(2, 2), (1, 2))]
    assert corrupt(two, CASES, seed=3, kinds=["other_case"]) == []  # of as many doctors


@pytest.mark.parametrize(
    ("given", "reversed_scores"),
    [((5, 2, 3), (2, 5, 3)), ((5, 5, 1), (1, 1, 5)), ((None, 4, 3), (None, 3, 4))],
)
def test_scores_are_reversed(given, reversed_scores):
    (worse,) = corrupt([replace(GOOD[0], scores=given)], CASES, 0, ["contradicting_scores"])
    assert worse.scores == reversed_scores


def test_equal_scores_cannot_be_reversed():
    level = replace(GOOD[0], scores=(4, 4, 4))
    assert corrupt([level], CASES, 0, ["contradicting_scores"]) == []


def test_a_rationale_is_cut_off_or_lacks_a_step():
    ways = Counter()
    for good, worse in pairs("cut_off"):
        cut = good.rationale.startswith(worse.rationale)
        ways[cut] += 1
        if not cut:
            before, after = split_steps(good.rationale), split_steps(worse.rationale)
            assert after.items() < before.items()
            assert len(after) == len(before) - 1
    assert min(ways[True], ways[False]) > 8


def test_a_kind_that_cannot_be_passes_on():
    level = [replace(one, scores=(3, 3, 3)) for one in GOOD]
    worse = corrupt(level, CASES, seed=1, kinds=["contradicting_scores", "cut_off"])
    assert {one.extra["corruption"] for one in worse} == {"cut_off"}
    mixed = corrupt(
        [*level[:20], *GOOD[20:]], CASES, seed=1, kinds=["contradicting_scores", "cut_off"]
    )
    assert set(Counter(one.extra["corruption"] for one in mixed).values()) == {20}


def test_nothing_is_made_of_nothing():
    invalid = replace(GOOD[0], valid=False, rationale=None, scores=None)
    silent = replace(GOOD[1], rationale=None)
    worse = corrupt([invalid, silent, GOOD[2]], CASES, seed=1)
    assert [one.case_id for one in worse] == ["c2"]
    assert share_line(3, worse).endswith("2 left out")
