"""Which prompts a case takes."""

from collections import Counter
from itertools import combinations, permutations

import pytest

from automedeval.judges.requests import Request, plan_requests
from automedeval.records import Case, RecordError, Response
from automedeval.rubrics import read_rubric

LISTWISE, PAIRWISE, GUIDED = map(
    read_rubric, ("automedeval", "medical_pairwise", "instruction_pairwise")
)


def case(count: int, reference: str | None = None, name: str = "c") -> Case:
    responses = [Response(f"m{index}", f"text {index}") for index in range(count)]
    return Case(name, "Why?", tuple(responses), reference)


def plan(count: int, rubric=LISTWISE, **options) -> list[Request]:
    return list(plan_requests(case(count), rubric, **options))


def first_orders(count: int, cases: int, rubric=LISTWISE, seed: int = 0) -> list[tuple]:
    """Return the first order in which each of some cases with so many responses is shown."""
    named = [case(count, name=f"c{number}") for number in range(cases)]
    return [next(plan_requests(each, rubric, seed=seed)).slots for each in named]


def test_one_order_is_seeded_per_case():
    orders = first_orders(3, 60)
    assert orders == first_orders(3, 60)
    assert set(orders) == set(permutations(range(3)))
    assert orders != first_orders(3, 60, seed=1)


def test_all_orders_and_a_latin_square():
    every = [request.slots for request in plan(3, orders="all")]
    assert set(every) == set(permutations(range(3)))
    latin = [request.slots for request in plan(3, orders="latin")]
    assert len(latin) == 3
    for in_slot in zip(*latin):
        assert set(in_slot) == {0, 1, 2}


@pytest.mark.parametrize("count", [4, 6, 7, 14])
def test_more_responses_than_fit_go_into_balanced_groups(count):
    groups = [request.slots for request in plan(count)]
    assert {len(set(group)) for group in groups} == {3}
    for in_slot in zip(*groups):  # every response once in every slot, hence in three groups
        assert sorted(in_slot) == list(range(count))
    meetings = Counter(pair for group in groups for pair in combinations(sorted(group), 2))
    if count >= 7:
        assert max(meetings.values()) == 1


def test_one_response_alone():
    (request,) = plan(1)
    assert request.slots == (0,)
    assert plan(1, PAIRWISE) == []


def test_every_pair_or_those_with_the_baseline():
    requests = plan(4, PAIRWISE)
    assert len({frozenset(request.slots) for request in requests}) == len(requests) == 6
    for request in requests:
        assert {f"m{slot}" for slot in request.slots} == set(request.pair)
    against = plan(4, PAIRWISE, baseline="m2")
    assert [request.pair for request in against] == [("m2", "m0"), ("m2", "m1"), ("m2", "m3")]
    both = plan(2, PAIRWISE, orders="all", runs=2)
    keys = [(request.slots, request.run) for request in both]
    assert keys == [((0, 1), 0), ((0, 1), 1), ((1, 0), 0), ((1, 0), 1)]
    assert len({request.key for request in both}) == 4


def test_the_first_slot_of_pairs_is_balanced_over_cases():
    first = Counter(slots[0] for slots in first_orders(2, 400, PAIRWISE))
    assert 150 < first[0] < 250


def test_what_is_not_there_is_refused():
    with pytest.raises(RecordError, match="'nobody'"):
        plan(3, PAIRWISE, baseline="nobody")
    with pytest.raises(RecordError, match="has no reference"):
        plan(2, GUIDED)
    assert next(plan_requests(case(2, reference="So."), GUIDED))
