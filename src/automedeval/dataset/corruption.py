"""Verdicts made worse on purpose: low-quality examples for the quality classifier (paper, Appendix B) and for checks.

Appendix B labels verdicts with obvious faults by hand. Where too few are labelled, these stand in for them: each is a good
verdict with one fault of a known kind, so that a classifier can be measured kind by kind.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from automedeval.records import Case, RecordError, Verdict
from automedeval.rubrics.rationale import permute, split_steps, without_step

Pools = dict[tuple[str | None, int], list[Verdict]]  # by judge, or of all judges, and by the number of doctors
_NOT_COPIED = ("transcript", "knowledge", "probabilities")  # they hold or explain the verdict that was


def corrupt(
    verdicts: Iterable[Verdict], cases: Mapping[str, Case], seed: int, kinds: Sequence[str] | None = None
) -> list[Verdict]:
    """Make each verdict worse by one kind of fault, the kinds in equal shares.

    A verdict takes the kind that has been used least among those that can be done to it. What nothing can be done to, such
    as an invalid verdict or one without a rationale, is left out; `share_line` says how many.

    Args:
        verdicts: good ones.
        cases: by id, every case that the verdicts are about.
        seed: of the kinds' distribution and of everything that a kind chooses.
        kinds: some of `KINDS`; all by default.

    Returns:
        The worse verdicts in the order of the good ones, each with {"corruption": kind} in `extra`. What the fault makes
        untrue is gone: raw text, transcript, expected scores.

    Raises:
        RecordError: an unknown kind, or a verdict about a case that is not there.
    """
    kinds = list(KINDS) if kinds is None else list(kinds)
    for kind in kinds:
        if kind not in KINDS:
            raise RecordError(f"no kind of corruption is called {kind!r}; there are {', '.join(KINDS)}")
    given = list(verdicts)
    for verdict in given:
        if verdict.case_id not in cases:
            raise RecordError(f"a verdict is about the case {verdict.case_id!r}, which is not among the cases")
    pools: Pools = defaultdict(list)
    for verdict in given:
        if _is_readable(verdict):
            pools[verdict.judge, len(verdict.order)].append(verdict)
            pools[None, len(verdict.order)].append(verdict)
    options = [_options(verdict, cases[verdict.case_id], pools, seed, kinds) for verdict in given]
    rng = random.Random(seed)
    tie_break = rng.sample(kinds, len(kinds))
    used = dict.fromkeys(tie_break, 0)
    turn = rng.sample(range(len(given)), len(given))
    chosen: dict[int, Verdict] = {}
    for index in sorted(turn, key=lambda index: len(options[index])):  # those with the least choice choose first
        for kind in sorted(options[index], key=lambda kind: (used[kind], tie_break.index(kind)))[:1]:
            used[kind] += 1
            chosen[index] = options[index][kind]
    return [chosen[index] for index in sorted(chosen)]


def share_line(verdicts: int, corrupted: Sequence[Verdict]) -> str:
    """Return the arithmetic of a corruption in one line: "40 verdicts → 38 corrupted (cut_off: 10, …), 2 left out"."""
    found = [verdict.extra["corruption"] for verdict in corrupted]
    shares = ", ".join(f"{kind}: {found.count(kind):,}" for kind in KINDS if kind in found)
    return f"{verdicts:,} verdicts → {len(found):,} corrupted ({shares}), {verdicts - len(found):,} left out"


def _is_readable(verdict: Verdict) -> bool:
    return verdict.valid and bool((verdict.rationale or "").strip())


def _options(verdict: Verdict, case: Case, others: Pools, seed: int, kinds: Sequence[str]) -> dict[str, Verdict]:
    """Return what becomes of a verdict by each of the kinds that can be done to it."""
    options = {}
    if not _is_readable(verdict):
        return options
    for kind in kinds:
        # A generator of its own, so that a verdict's fault depends on no other verdict's.
        rng = random.Random(f"{seed}/{kind}/{verdict.case_id}/{verdict.judge}/{verdict.order}/{verdict.run}")
        changed = KINDS[kind](verdict, case, others, rng)
        if changed and any(getattr(verdict, name) != value for name, value in changed.items()):
            extra = {key: value for key, value in verdict.extra.items() if key not in _NOT_COPIED}
            extra["corruption"] = kind
            options[kind] = replace(verdict, **changed, expected_scores=None, raw="", usage={}, extra=extra)
    return options


def _swap_doctors(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> dict | None:
    """Exchange what is said of two doctors whose responses differ; the scores stay."""
    steps, count = split_steps(verdict.rationale), len(verdict.order)
    texts = [case.responses[index].text for index in verdict.order]
    pairs = [
        (i, j)
        for i in range(count)
        for j in range(i + 1, count)
        if texts[i] != texts[j] and steps.get(i + 1) and steps.get(j + 1) and steps[i + 1] != steps[j + 1]
    ]
    if not pairs:
        return None
    i, j = rng.choice(pairs)
    slots = list(range(count))
    slots[i], slots[j] = j, i
    return {"rationale": permute(verdict.rationale, slots)}


def _take_another_case(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> dict | None:
    """Put the rationale of another case in its place, of as many doctors and by the same judge where there is one."""
    for pool in (others[verdict.judge, len(verdict.order)], others[None, len(verdict.order)]):
        start = rng.randrange(len(pool))
        for other in itertools.chain(pool[start:], pool[:start]):
            if other.case_id != case.id:
                return {"rationale": other.rationale}
    return None


def _reverse_scores(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> dict | None:
    """Give the best doctors the score of the worst and the other way round; the rationale stays."""
    values = sorted({score for score in verdict.scores or () if score is not None})
    if len(values) < 2:
        return None
    reversed_values = {**dict(zip(values, values[::-1])), None: None}
    return {"scores": tuple(reversed_values[score] for score in verdict.scores)}


def _cut_off(verdict: Verdict, case: Case, others: Pools, rng: random.Random) -> dict | None:
    """End the rationale in the middle, or take the step on one doctor out."""
    rationale = verdict.rationale.rstrip()
    doctors = sorted(doctor for doctor in split_steps(rationale) if 1 <= doctor <= len(verdict.order))
    if len(doctors) > 1 and rng.random() < 0.5:
        return {"rationale": without_step(rationale, rng.choice(doctors))}
    words = rationale.split(" ")
    if len(words) < 4:
        return None
    return {"rationale": " ".join(words[: int(len(words) * rng.uniform(0.3, 0.8))]).rstrip(".!? \n")}


KINDS: dict[str, Callable[[Verdict, Case, Pools, random.Random], dict | None]] = {
    "swapped_doctors": _swap_doctors,
    "other_case": _take_another_case,
    "contradicting_scores": _reverse_scores,
    "cut_off": _cut_off,
}
