"""Corrupt verdicts: low-quality examples for the quality classifier (paper, Appendix B).

The paper labels faulty verdicts by hand. Where too few are labelled, corrupted ones replace them: each is a good verdict with
one fault of a known kind, so that the classifier can be measured kind by kind. Wrong knowledge is no kind: it was never learnt.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedeval.records import Case, Verdict
from automedeval.rubrics.rationale import permute, split_steps

Change = dict[str, Any]  # fields of the corrupted verdict; empty where the fault is not possible
_NOT_COPIED = {"transcript", "probabilities"}  # they belong to the original verdict


def corrupt(verdicts: Iterable[Verdict], cases: Mapping[str, Case], seed: int) -> list[Verdict]:
    """Put one fault into each verdict, the kinds of faults in equal shares.

    The kinds take turns, in an order of the verdicts by the seed. A verdict gets the next kind that is possible for it; one for
    which none is, as without a rationale, is left out. `cases` are by id. Return the corrupted verdicts in the order of
    the verdicts, each with {"corruption": kind} in `extra`, and without raw text, transcript and expected scores.
    """
    readable = [verdict for verdict in verdicts if verdict.valid and verdict.rationale]
    rng = random.Random(seed)
    kinds = rng.sample(list(KINDS), len(KINDS))
    in_turn = rng.sample(range(len(readable)), len(readable))
    corrupted = {}
    for turn, at in enumerate(in_turn):
        first = turn % len(kinds)
        for kind in kinds[first:] + kinds[:first]:
            case = cases[readable[at].case_id]
            if faulty := _with_fault(kind, readable[at], case, readable, seed):
                corrupted[at] = faulty
                break
    return [corrupted[at] for at in sorted(corrupted)]


def _with_fault(
    kind: str, verdict: Verdict, case: Case, others: Sequence[Verdict], seed: int
) -> Verdict | None:
    """Return the verdict with a fault of this kind; None if it is not possible."""
    name = f"{verdict.case_id}/{verdict.judge}/{verdict.order}/{verdict.run}"
    # One generator per verdict and kind, so that a fault does not depend on other verdicts.
    change = KINDS[kind](verdict, case, others, random.Random(f"{seed}/{kind}/{name}"))
    faulty = replace(verdict, **change)
    if (faulty.rationale, faulty.scores) == (verdict.rationale, verdict.scores):
        return None
    extra = {key: verdict.extra[key] for key in verdict.extra if key not in _NOT_COPIED}
    extra["corruption"] = kind
    gone: dict[str, Any] = {
        "expected_scores": None,
        "criterion_scores": None,
        "raw": "",
        "usage": {},
        "knowledge": None,
    }
    return replace(faulty, **gone, extra=extra)


def _swap_doctors(
    verdict: Verdict, case: Case, others: Sequence[Verdict], rng: random.Random
) -> Change:
    """Swap the steps of two doctors whose responses differ; keep the scores."""
    rationale = verdict.rationale or ""
    steps = split_steps(rationale)
    texts = [case.responses[index].text for index in verdict.order]
    judged = [slot for slot in range(len(texts)) if slot + 1 in steps]
    pairs = [
        (first, second)
        for first, second in itertools.combinations(judged, 2)
        if texts[first] != texts[second]
    ]
    if not pairs:
        return {}
    first, second = rng.choice(pairs)
    slots = list(range(len(texts)))
    slots[first], slots[second] = second, first
    return {"rationale": permute(rationale, slots)}


def _take_another_case(
    verdict: Verdict, case: Case, others: Sequence[Verdict], rng: random.Random
) -> Change:
    """Take the rationale of another case with as many doctors, by the same judge if there is one."""
    alike = [
        other
        for other in others
        if other.case_id != case.id and len(other.order) == len(verdict.order)
    ]
    by_judge = [other for other in alike if other.judge == verdict.judge]
    return {"rationale": rng.choice(by_judge or alike).rationale} if alike else {}


def _reverse_scores(
    verdict: Verdict, case: Case, others: Sequence[Verdict], rng: random.Random
) -> Change:
    """Reverse the scores, so that the best doctors have the lowest; keep the rationale."""
    scores = verdict.scores or ()
    values = sorted({score for score in scores if score is not None})
    opposite = dict(zip(values, reversed(values)))
    return {"scores": tuple(None if score is None else opposite[score] for score in scores)}


def _cut_off(verdict: Verdict, case: Case, others: Sequence[Verdict], rng: random.Random) -> Change:
    """Cut the rationale in the middle."""
    words = (verdict.rationale or "").split(" ")
    beginning = words[: int(len(words) * rng.uniform(0.3, 0.8))]
    return {"rationale": " ".join(beginning).rstrip(".!? \n")} if beginning else {}


KINDS: dict[str, Callable[[Verdict, Case, Sequence[Verdict], random.Random], Change]] = {
    "swapped_doctors": _swap_doctors,
    "other_case": _take_another_case,
    "contradicting_scores": _reverse_scores,
    "cut_off": _cut_off,
}
