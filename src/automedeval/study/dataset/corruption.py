"""Corrupt verdicts: low-quality examples for the quality classifier (paper, Appendix B).

The paper labels faulty verdicts by hand. Where too few are labelled, corrupted ones replace them: each is a good verdict with
one fault of a known kind, so that the classifier can be measured kind by kind. Wrong knowledge is no kind: it was never learnt.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from automedeval.records import Case, Verdict
from automedeval.rubrics.rationale import permute, split_steps

Change = dict[str, Any]  # fields of the corrupted verdict; empty where the fault is not possible


def corrupt(verdicts: Iterable[Verdict], cases: Mapping[str, Case], seed: int) -> list[Verdict]:
    """Put one fault into each verdict, the kinds of faults in equal shares.

    The kinds take turns, in an order of the verdicts by the seed. A verdict gets the next kind that is possible for it; one for
    which none is, as without a rationale, is left out. `cases` are by id. Return the corrupted verdicts in the order of
    the verdicts, each with {"corruption": kind} in `extra`; what the judge wrote beside rationale and scores stays.
    """
    readable = [verdict for verdict in verdicts if verdict.valid and verdict.rationale]
    rng = random.Random(seed)
    kinds = rng.sample(list(KINDS), len(KINDS))
    in_turn = rng.sample(range(len(readable)), len(readable))
    corrupted = {}
    for at in in_turn:
        verdict = readable[at]
        good = _Original(verdict, cases[verdict.case_id], readable)
        name = f"{verdict.case_id}/{verdict.judge}/{verdict.order}/{verdict.run}"
        for kind in kinds:
            # One generator per verdict and kind, so that a fault does not depend on other verdicts.
            change = KINDS[kind](good, random.Random(f"{seed}/{kind}/{name}"))
            faulty = replace(verdict, **change)
            if (faulty.rationale, faulty.scores) != (verdict.rationale, verdict.scores):
                corrupted[at] = replace(faulty, extra=verdict.extra | {"corruption": kind})
                break
        kinds = [*kinds[1:], kinds[0]]
    return [corrupted[at] for at in sorted(corrupted)]


@dataclass(frozen=True)
class _Original:
    """A good verdict, its case, and all good verdicts; the methods return what changes with a fault, if it is possible."""

    verdict: Verdict
    case: Case
    all: Sequence[Verdict]

    @property
    def rationale(self) -> str:
        return self.verdict.rationale or ""

    def swapped_doctors(self, rng: random.Random) -> Change:
        """Swap the steps of two doctors whose responses differ; keep the scores."""
        steps = split_steps(self.rationale)
        texts = self.case.texts(self.verdict.order)
        judged = [slot for slot in range(len(texts)) if slot + 1 in steps]
        pairs = []
        for first, second in combinations(judged, 2):
            if texts[first] != texts[second]:
                pairs.append((first, second))
        if not pairs:
            return {}
        first, second = rng.choice(pairs)
        slots = list(range(len(texts)))
        slots[first] = second
        slots[second] = first
        return {"rationale": permute(self.rationale, slots)}

    def other_case(self, rng: random.Random) -> Change:
        """Take the rationale of another case with as many doctors, by the same judge if there is one."""
        alike = []
        for other in self.all:
            if other.case_id != self.case.id and len(other.order) == len(self.verdict.order):
                alike.append(other)
        by_judge = [other for other in alike if other.judge == self.verdict.judge]
        return {"rationale": rng.choice(by_judge or alike).rationale} if alike else {}

    def contradicting_scores(self, rng: random.Random) -> Change:
        """Reverse the scores, so that the best doctors have the lowest; keep the rationale."""
        scores = self.verdict.scores or ()
        values = sorted(score for score in set(scores) if score is not None)
        opposite: dict[int | None, int] = dict(zip(values, reversed(values)))
        return {"scores": tuple(opposite.get(score) for score in scores)}

    def cut_off(self, rng: random.Random) -> Change:
        """Cut the rationale in the middle."""
        words = self.rationale.split(" ")
        beginning = words[: int(len(words) * rng.uniform(0.3, 0.8))]
        return {"rationale": " ".join(beginning).rstrip(".!? \n")} if beginning else {}


KINDS: dict[str, Callable[[_Original, random.Random], Change]] = {
    "swapped_doctors": _Original.swapped_doctors,
    "other_case": _Original.other_case,
    "contradicting_scores": _Original.contradicting_scores,
    "cut_off": _Original.cut_off,
}
