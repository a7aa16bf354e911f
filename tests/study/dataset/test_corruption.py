"""Verdicts made worse on purpose: each kind, equal shares, and never the verdict that was."""

from collections import Counter
from dataclasses import replace

from factories import case_of, verdict_of
from programs import module_fixture

from automedeval.records import Response
from automedeval.rubrics.rationale import split_steps
from automedeval.study.dataset.corruption import KINDS, corrupt

CASES = {f"case-{number}": case_of(number) for number in range(40)}
GOOD = []
for good_case in CASES.values():
    good = verdict_of(good_case, (5, 2, 3), extra={"rounds": 1})
    GOOD.append(replace(good, rationale=good.rationale.replace("a complaint", good_case.id)))


@module_fixture
def worse():
    return corrupt(GOOD, CASES, seed=1)


def test_the_kinds_have_equal_shares(worse):
    assert worse == corrupt(GOOD, CASES, seed=1) != corrupt(GOOD, CASES, seed=2)
    assert Counter(verdict.extra["corruption"] for verdict in worse) == dict.fromkeys(KINDS, 10)
    assert [verdict.case_id for verdict in worse] == list(CASES)


def test_each_has_its_fault_and_nothing_else_changes(worse):
    for good, faulty in zip(GOOD, worse, strict=True):
        before = split_steps(good.rationale)
        after = split_steps(faulty.rationale)
        kind = faulty.extra["corruption"]
        changed = {"rationale": faulty.rationale, "scores": faulty.scores}
        assert faulty == replace(good, **changed, extra=good.extra | {"corruption": kind})
        assert faulty.scores == ((2, 5, 3) if kind == "contradicting_scores" else good.scores)
        if kind == "swapped_doctors":
            assert sorted(after.values()) == sorted(before.values())
            assert sum(before[doctor] != after[doctor] for doctor in before) == 2
            assert after[0] == before[0]
        elif kind == "other_case":
            assert f"{good.case_id}." not in faulty.rationale
        elif kind == "cut_off":
            assert good.rationale.startswith(faulty.rationale)
            assert len(faulty.rationale) < len(good.rationale)


def faults_of(*verdicts, cases=CASES):
    """Return kind → the first verdict with this fault that some draws make of the verdicts."""
    faults = {}
    for seed in range(30):
        for verdict in corrupt(verdicts, cases, seed):
            faults.setdefault(verdict.extra["corruption"], verdict)
    return faults


def test_a_fault_that_cannot_be_is_not_made():
    good, other = GOOD[:2]
    level = replace(good, scores=(4, 4, 4))
    of_two = verdict_of(case_of(1, ("ash", "birch")), (1, 2))
    rest = tuple(Response(name, "Rest.") for name in good_case.models)
    same = replace(CASES[good.case_id], responses=rest)
    assert faults_of(good, other).keys() == KINDS.keys()
    assert faults_of(good, of_two).keys() == KINDS.keys() - {"other_case"}
    assert faults_of(level).keys() == {"swapped_doctors", "cut_off"}
    assert faults_of(level, cases={good.case_id: same}).keys() == {"cut_off"}


def test_scores_are_reversed():
    for given, expected in (((5, 5, 1), (1, 1, 5)), ((None, 4, 3), (None, 3, 4))):
        faults = faults_of(replace(GOOD[0], scores=given))
        assert faults["contradicting_scores"].scores == expected


def test_nothing_is_made_of_nothing():
    invalid = replace(GOOD[0], valid=False, rationale=None, scores=None)
    silent = replace(GOOD[1], rationale=None)
    worse = corrupt([invalid, silent, GOOD[2]], CASES, seed=1)
    assert [verdict.case_id for verdict in worse] == ["case-2"]
