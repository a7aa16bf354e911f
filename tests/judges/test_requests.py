"""Which prompts a case takes."""

from collections import Counter
from itertools import combinations, permutations

import pytest

from automedeval.judges.requests import plan_requests
from automedeval.records import Case, RecordError, Response
from automedeval.rubrics import read_rubric

LISTWISE, PAIRWISE, GUIDED = map(
    read_rubric, ("automedeval", "medical_pairwise", "instruction_pairwise")
)


def case(count: int, reference: str | None = None, name: str = "c") -> Case:
    return Case(
        name,
        "Why?",
        tuple(Response(f"m{index}", f"text {index}") for index in range(count)),
        reference,
    )


def test_one_order_is_seeded_per_case():
    orders = [plan_requests(case(3, name=f"c{n}"), LISTWISE)[0].slots for n in range(60)]
    assert orders == [plan_requests(case(3, name=f"c{n}"), LISTWISE)[0].slots for n in range(60)]
    assert set(orders) == set(permutations(range(3)))
    assert orders != [
        plan_requests(case(3, name=f"c{n}"), LISTWISE, seed=1)[0].slots for n in range(60)
    ]


def test_all_orders_and_a_latin_square():
    assert {r.slots for r in plan_requests(case(3), LISTWISE, "all")} == set(permutations(range(3)))
    latin = [request.slots for request in plan_requests(case(3), LISTWISE, "latin")]
    assert len(latin) == 3
    for slot in range(3):
        assert {slots[slot] for slots in latin} == {0, 1, 2}


@pytest.mark.parametrize("count", [4, 6, 7, 14])
def test_more_responses_than_fit_go_into_balanced_groups(count):
    groups = [request.slots for request in plan_requests(case(count), LISTWISE)]
    assert all(len(set(group)) == 3 for group in groups)
    for slot in range(3):  # every response once in every slot, hence in three groups
        assert sorted(group[slot] for group in groups) == list(range(count))
    meetings = Counter(pair for group in groups for pair in combinations(sorted(group), 2))
    if count >= 7:
        assert max(meetings.values()) == 1


def test_one_response_alone():
    assert [request.slots for request in plan_requests(case(1), LISTWISE)] == [(0,)]
    assert plan_requests(case(1), PAIRWISE) == []


def test_every_pair_or_those_with_the_baseline():
    requests = plan_requests(case(4), PAIRWISE)
    assert len({frozenset(request.slots) for request in requests}) == len(requests) == 6
    for request in requests:
        assert {f"m{slot}" for slot in request.slots} == set(request.pair)
    against = plan_requests(case(4), PAIRWISE, baseline="m2")
    assert [request.pair for request in against] == [("m2", "m0"), ("m2", "m1"), ("m2", "m3")]
    both = plan_requests(case(2), PAIRWISE, "all", runs=2)
    assert [request.key[1:] for request in both] == [
        (slots, ("m0", "m1"), run) for slots in ((0, 1), (1, 0)) for run in (0, 1)
    ]


def test_the_first_slot_of_pairs_is_balanced_over_cases():
    first = Counter(plan_requests(case(2, name=f"c{n}"), PAIRWISE)[0].slots[0] for n in range(400))
    assert 150 < first[0] < 250


def test_what_is_not_there_is_refused():
    with pytest.raises(RecordError, match="'nobody'"):
        plan_requests(case(3), PAIRWISE, baseline="nobody")
    with pytest.raises(RecordError, match="has no reference"):
        plan_requests(case(2), GUIDED)
    assert len(plan_requests(case(2, reference="So."), GUIDED)) == 1
