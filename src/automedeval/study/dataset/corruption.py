"""Corrupt verdicts: low-quality examples for the quality classifier (paper, Appendix B).

The paper labels faulty verdicts by hand. Where too few are labelled, corrupted ones replace them: each is a good verdict with
one fault of a known kind, so that the classifier can be measured kind by kind. Wrong knowledge is no kind: it was never learnt.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from automedeval.records import Case, Verdict
from automedeval.rubrics.rationale import permute, split_steps, without_step

# By judge, or of all judges, and by the number of doctors.
Pools = dict[tuple[str | None, int], list[Verdict]]
Change = (
    dict[str, Any] | None
)  # fields of the corrupted verdict; None where the fault is not possible
# They belong to the original verdict.
_NOT_COPIED = {"transcript", "knowledge", "probabilities", "unseen_probability"}


def corrupt(
    verdicts: Iterable[Verdict],
    cases: Mapping[str, Case],
    seed: int,
    kinds: Sequence[str] | None = None,
) -> list[Verdict]:
    """Put one fault into each verdict, the kinds of faults in equal shares.

    A verdict gets the kind that was used least among those that are possible for it, by the seed; verdicts for which none is
    possible, such as those without a rationale, are left out. `cases` are by id; `kinds` are some of `KINDS`, or all. Return
    the corrupted verdicts in the order of the verdicts, each with {"corruption": kind} in `extra`, and without raw text,
    transcript and expected scores.
    """
    kinds = list(KINDS if kinds is None else kinds)
    verdicts = list(verdicts)
    pools: Pools = defaultdict(list)
    readable = {at: verdict for at, verdict in enumerate(verdicts) if _is_readable(verdict)}
    for verdict in readable.values():
        pools[verdict.judge, len(verdict.order)].append(verdict)
        pools[None, len(verdict.order)].append(verdict)
    options = {
        at: _options(verdict, cases[verdict.case_id], pools, seed, kinds)
        for at, verdict in readable.items()
    }
    rng = random.Random(seed)
    tie_break = rng.sample(kinds, len(kinds))
    used = dict.fromkeys(tie_break, 0)
    turn = rng.sample(range(len(verdicts)), len(verdicts))
    fewest_first = sorted(filter(options.get, turn), key=lambda at: len(options[at]))
    corrupted: dict[int, Verdict] = {}
    for at in fewest_first:
        possible = [kind for kind in tie_break if kind in options[at]]
        kind = min(possible, key=used.__getitem__)
        used[kind] += 1
        corrupted[at] = options[at][kind]
    return [corrupted[at] for at in sorted(corrupted)]


def _is_readable(verdict: Verdict) -> bool:
    return verdict.valid and bool((verdict.rationale or "").strip())


def share_line(verdicts: int, corrupted: Sequence[Verdict]) -> str:
    """Return the line that reports a corruption: "40 verdicts → 38 corrupted (cut_off: 10, …), 2 left out"."""
    kinds = [verdict.extra["corruption"] for verdict in corrupted]
    shares = ", ".join(f"{kind}: {kinds.count(kind):,}" for kind in KINDS if kind in kinds)
    return f"{verdicts:,} verdicts → {len(kinds):,} corrupted ({shares}), {verdicts - len(kinds):,} left out"


def _options(
    verdict: Verdict, case: Case, others: Pools, seed: int, kinds: Sequence[str]
) -> dict[str, Verdict]:
    """Return kind → corrupted verdict for each kind that is possible."""
    options = {}
    name = f"{verdict.case_id}/{verdict.judge}/{verdict.order}/{verdict.run}"
    extra = {key: verdict.extra[key] for key in verdict.extra if key not in _NOT_COPIED}
    blank = replace(verdict, expected_scores=None, criterion_scores=None, raw="", usage={})
    for kind in kinds:
        # One generator per verdict and kind, so that a fault does not depend on other verdicts.
        change = KINDS[kind](verdict, case, others, random.Random(f"{seed}/{kind}/{name}"))
        if change and any(getattr(verdict, field) != change[field] for field in change):
            options[kind] = replace(blank, **change, extra={**extra, "corruption": kind})
    return options


def _swap_doctors(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> Change:
    """Swap the steps of two doctors whose responses differ; keep the scores."""
    rationale, slots = verdict.rationale or "", list(range(len(verdict.order)))
    steps = split_steps(rationale)
    texts = [case.responses[index].text for index in verdict.order]
    judged = [slot for slot in slots if steps.get(slot + 1)]
    pairs = [
        (first, second)
        for first, second in itertools.combinations(judged, 2)
        if texts[first] != texts[second] and steps[first + 1] != steps[second + 1]
    ]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    slots[first], slots[second] = second, first
    return {"rationale": permute(rationale, slots)}


def _take_another_case(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> Change:
    """Take the rationale of another case with as many doctors, by the same judge if there is one."""
    for pool in (others[verdict.judge, len(verdict.order)], others[None, len(verdict.order)]):
        start = rng.randrange(len(pool))
        for other in itertools.chain(pool[start:], pool[:start]):
            if other.case_id != case.id:
                return {"rationale": other.rationale}
    return None


def _reverse_scores(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> Change:
    """Reverse the scores, so that the best doctors have the lowest; keep the rationale."""
    scores = verdict.scores or ()
    values = sorted({score for score in scores if score is not None})
    if len(values) < 2:
        return None
    opposite = dict(zip(values, reversed(values)))
    return {"scores": tuple(None if score is None else opposite[score] for score in scores)}


def _cut_off(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> Change:
    """Cut the rationale in the middle, or remove the step on one doctor."""
    rationale = (verdict.rationale or "").rstrip()
    steps = split_steps(rationale)
    doctors = [slot for slot in range(1, len(verdict.order) + 1) if slot in steps]
    if len(doctors) > 1 and rng.random() < 0.5:
        return {"rationale": without_step(rationale, rng.choice(doctors))}
    words = rationale.split(" ")
    if len(words) < 4:
        return None
    beginning = words[: int(len(words) * rng.uniform(0.3, 0.8))]
    return {"rationale": " ".join(beginning).rstrip(".!? \n")}


KINDS: dict[str, Callable[[Verdict, Case, Pools, random.Random], Change]] = {
    "swapped_doctors": _swap_doctors,
    "other_case": _take_another_case,
    "contradicting_scores": _reverse_scores,
    "cut_off": _cut_off,
}
