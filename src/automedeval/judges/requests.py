"""Plan which prompts a case needs: orders, pairs, groups and runs.

A plan depends on the case, the rubric and a seed alone, so that every process, and every start of one, plans the same.
"""

import random
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations
from typing import Any

from automedeval.records import Case, RecordError
from automedeval.rubrics import Rubric

Slots = tuple[int, ...]  # the index of the response in each slot


@dataclass(frozen=True)
class Request:
    """One prompt of a case: `slots` has the index of the response in each slot, `pair` the models that a rubric compares.

    `run` is the number of the repetition; `rationale` says whether the prompt asks for one, None leaves it to the judge;
    `original` is the case as in its file, if `case` has the reference as one more response; `checklist`: the prompt shows the
    criteria of the case.
    """

    case: Case
    slots: Slots
    pair: tuple[str, str] | None = None
    run: int = 0
    rationale: bool | None = None
    original: Case | None = None
    checklist: bool = False

    @property
    def key(self) -> tuple:
        """Return the key of this request's verdict, `Verdict.key`: no two of a judge and rubric are equal."""
        return (self.case.id, self.slots, self.pair, self.run)

    @property
    def empty(self) -> list[int]:
        """Return the indices of the empty responses among those that are shown."""
        return [index for index in self.slots if self.case.responses[index].is_empty]

    @property
    def digest(self) -> str:
        """Return the digest of the case as in its file, with its criteria where they are shown."""
        case = self.original or self.case
        return case.checklist_digest if self.checklist else case.digest


Planner = Callable[[Case], Iterable[Request]]


class _Digests(UserDict[str, Any]):
    """Map the id of a case to the digest of its requests, computed when it is asked for."""

    plan: Planner

    def __getitem__(self, case_id: str) -> str:
        return next(iter(self.plan(self.data[case_id]))).digest


class Requests:
    """The requests of cases, in their order, each planned when it is asked for: a million of them take long, and much memory.

    `plan` refuses a case at once, and returns [] for one that is not asked about; of others the number of responses says how
    many requests there are. `digests` are those of the cases that take a request, by id.
    """

    def __init__(self, cases: Sequence[Case], plan: Planner):
        self.cases = cases
        self.digests = _Digests()
        self.digests.plan = plan
        self._count = 0
        counts: dict[int, int] = {}
        for case in cases:
            requests = plan(case)
            responses = len(case.responses) if requests else 0
            if responses not in counts:
                counts[responses] = len(list(requests))
            if counts[responses]:
                self._count += counts[responses]
                self.digests.data[case.id] = case

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(map(self.digests.plan, self.cases))


def plan_requests(
    case: Case,
    rubric: Rubric,
    orders: str = "1",
    seed: int = 0,
    runs: int = 1,
    baseline: str | None = None,
) -> Iterator[Request]:
    """Plan the prompts of one case, each asked `runs` times; by a pairwise rubric on all pairs, or those with the `baseline`.

    A listwise rubric shows up to `max_responses` at once; more are judged in as many groups as there are responses, so that
    each response is in `max_responses` groups, once in each slot. A checklist shows each response alone. `orders` is "1" for
    one seeded order, "all" for every permutation, "latin" for a Latin square (each response once in each slot). RecordError, at
    once: no response of the baseline in this case, or no reference, or no criteria, where the rubric needs them.
    """
    is_checklist = rubric.mode == "checklist"
    lack = None
    if rubric.needs_reference and case.reference is None:
        lack = f"no reference, and the rubric {rubric.name} needs one"
    elif is_checklist and not case.criteria:
        lack = "no criteria, and a checklist needs them"
    elif baseline is not None and baseline not in case.models:
        lack = f"no response of {baseline!r}; it has {', '.join(case.models)}"
    if lack:
        raise RecordError(f"case {case.id!r} has {lack}")

    def planned() -> Iterator[Request]:
        rng = random.Random(f"{seed}:{case.id}")
        groups = _groups(case, rubric, baseline, rng)
        # Several groups of a list are balanced over the slots as they stand.
        shuffles = rubric.mode != "listwise" or len(groups) == 1
        for group in groups:
            pair = (
                (case.models[group[0]], case.models[group[1]])
                if rubric.mode == "pairwise"
                else None
            )
            for slots in _arrangements(group, orders, rng if shuffles else None):
                for run in range(runs):
                    yield Request(case, slots, pair, run, checklist=is_checklist)

    return planned()


def _groups(case: Case, rubric: Rubric, baseline: str | None, rng: random.Random) -> list[Slots]:
    """Return the responses that are shown together, as indices in the case."""
    chosen = list(range(len(case.responses)))
    if rubric.mode == "pairwise" and baseline is not None:
        base = case.models.index(baseline)
        return [(base, other) for other in chosen if other != base]
    if rubric.mode != "listwise":
        return list(combinations(chosen, 2 if rubric.mode == "pairwise" else 1))
    if len(chosen) <= rubric.max_responses:
        return [tuple(chosen)]
    rng.shuffle(chosen)
    return list(_cyclic_groups(chosen, rubric.max_responses))


def plan_apart(case: Case) -> list[Request]:
    """Plan the one request of a judge that looks at each response by itself: it shows all."""
    return [Request(case, tuple(range(len(case.responses))))]


def _cyclic_groups(indices: list[int], size: int) -> Iterator[Slots]:
    """Yield one group per item, so that every item stands in `size` groups, once in each slot.

    The offsets are a Golomb ruler as long as the cycle allows: then no two items meet twice more often than they must.
    """
    offsets = [0, 1, 3, 7, 12, 20][:size]
    if len({offset % len(indices) for offset in offsets}) < size:
        offsets = list(range(size))
    for start in range(len(indices)):
        yield tuple(indices[(start + offset) % len(indices)] for offset in offsets)


def _arrangements(group: Slots, orders: str, rng: random.Random | None) -> list[Slots]:
    """Return the orders in which a group is shown; without `rng` the first is the group's own."""
    if orders == "all":
        return list(permutations(group))
    start = list(group)
    if rng is not None:
        rng.shuffle(start)
    turns = len(start) if orders == "latin" else 1
    return [tuple(start[turn:] + start[:turn]) for turn in range(turns)]
