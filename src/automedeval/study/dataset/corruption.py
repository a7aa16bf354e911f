"""Corrupt verdicts: low-quality examples for the quality classifier (paper, Appendix B).

The paper labels faulty verdicts by hand. Where too few are labelled, corrupted ones replace them: each is a good verdict with
one fault of a known kind, so that the classifier can be measured kind by kind.
"""

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from automedeval.evidence.statements import sentences
from automedeval.records import Case, Verdict
from automedeval.records.tables import packaged
from automedeval.rubrics.rationale import permute, split_steps, without_step
from automedeval.study.dataset.terms import terms

Pools = dict[
    tuple[str | None, int], list[Verdict]
]  # by judge, or of all judges, and by the number of doctors
SHARED_TERMS = (
    3  # content words that a sentence shares with one of its source, to be about the same
)
_NOT_COPIED = (
    "transcript",
    "knowledge",
    "probabilities",
    "unseen_probability",
)  # they belong to the original verdict


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
    every = list(verdicts)
    readable = {
        at: verdict
        for at, verdict in enumerate(every)
        if verdict.valid and (verdict.rationale or "").strip()
    }
    pools: Pools = defaultdict(list)
    for verdict in readable.values():
        pools[verdict.judge, len(verdict.order)].append(verdict)
        pools[None, len(verdict.order)].append(verdict)
    options = {
        at: _options(each, cases[each.case_id], pools, seed, kinds) for at, each in readable.items()
    }
    rng = random.Random(seed)
    tie_break = rng.sample(kinds, len(kinds))
    used = dict.fromkeys(tie_break, 0)
    turn = rng.sample(range(len(every)), len(every))
    chosen: dict[int, Verdict] = {}
    # Verdicts with the fewest options first.
    for index in sorted(filter(options.get, turn), key=lambda index: len(options[index])):
        kind = min(options[index], key=lambda kind: (used[kind], tie_break.index(kind)))
        used[kind] += 1
        chosen[index] = options[index][kind]
    return [chosen[index] for index in sorted(chosen)]


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
    for kind in kinds:
        # One generator per verdict and kind, so that a fault does not depend on other verdicts.
        rng = random.Random(
            f"{seed}/{kind}/{verdict.case_id}/{verdict.judge}/{verdict.order}/{verdict.run}"
        )
        changed = KINDS[kind](verdict, case, others, rng)
        if changed and any(getattr(verdict, name) != value for name, value in changed.items()):
            extra = {key: value for key, value in verdict.extra.items() if key not in _NOT_COPIED}
            extra["corruption"] = kind
            changed |= {
                "expected_scores": None,
                "criterion_scores": None,
                "raw": "",
                "usage": {},
                "extra": extra,
            }
            options[kind] = replace(verdict, **changed)
    return options


def _swap_doctors(
    verdict: Verdict, case: Case, others: Pools, rng: random.Random
) -> dict[str, Any] | None:
    """Swap the steps of two doctors whose responses differ; keep the scores."""
    rationale, count = verdict.rationale or "", len(verdict.order)
    steps = split_steps(rationale)
    texts = [case.responses[index].text for index in verdict.order]
    by_slot = [steps.get(slot + 1) for slot in range(count)]
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(count), 2)
        if texts[i] != texts[j] and by_slot[i] and by_slot[j] and by_slot[i] != by_slot[j]
    ]
    if not pairs:
        return None
    i, j = rng.choice(pairs)
    slots = list(range(count))
    slots[i], slots[j] = j, i
    return {"rationale": permute(rationale, slots)}


def _take_another_case(
    verdict: Verdict, case: Case, others: Pools, rng: random.Random
) -> dict[str, Any] | None:
    """Take the rationale of another case with as many doctors, by the same judge if there is one."""
    for pool in (others[verdict.judge, len(verdict.order)], others[None, len(verdict.order)]):
        start = rng.randrange(len(pool))
        for other in itertools.chain(pool[start:], pool[:start]):
            if other.case_id != case.id:
                return {"rationale": other.rationale}
    return None


def _reverse_scores(
    verdict: Verdict, case: Case, others: Pools, rng: random.Random
) -> dict[str, Any] | None:
    """Reverse the scores, so that the best doctors have the lowest; keep the rationale."""
    scores = verdict.scores or ()
    values = sorted({score for score in scores if score is not None})
    if len(values) < 2:
        return None
    reversed_values = dict(zip(values, values[::-1]))
    return {"scores": tuple(None if score is None else reversed_values[score] for score in scores)}


def _cut_off(
    verdict: Verdict, case: Case, others: Pools, rng: random.Random
) -> dict[str, Any] | None:
    """Cut the rationale in the middle, or remove the step on one doctor."""
    rationale = (verdict.rationale or "").rstrip()
    doctors = sorted(
        doctor for doctor in split_steps(rationale) if 1 <= doctor <= len(verdict.order)
    )
    if len(doctors) > 1 and rng.random() < 0.5:
        return {"rationale": without_step(rationale, rng.choice(doctors))}
    words = rationale.split(" ")
    if len(words) < 4:
        return None
    return {
        "rationale": " ".join(words[: int(len(words) * rng.uniform(0.3, 0.8))]).rstrip(".!? \n")
    }


def _turn_knowledge(
    verdict: Verdict, case: Case, others: Pools, rng: random.Random
) -> dict[str, Any] | None:
    """Turn a sentence on a response against what the reference, or a passage that the teacher was shown, says of the same."""
    looked_up = [
        each["text"] for asked in verdict.extra.get("knowledge") or () for each in asked["passages"]
    ]
    sources = [
        terms(sentence)
        for text in (case.reference or "", *looked_up)
        for sentence in sentences(text)
    ]
    rationale = verdict.rationale or ""
    said = [
        each
        for doctor, step in split_steps(rationale).items()
        if doctor
        for each in sentences(step)
    ]
    said = [
        each
        for each in said
        if any(len(terms(each) & source) >= SHARED_TERMS for source in sources)
    ]
    for sentence in rng.sample(said, len(said)):
        if sentence in rationale and (contrary := _contrary(sentence, rng)):
            return {"rationale": rationale.replace(sentence, contrary, 1)}
    return None


@cache
def _contraries() -> list[tuple[re.Pattern, list[str], list[float]]]:
    """Return the patterns of what can be turned, with what each is replaced by, or by what its number is multiplied."""
    return [
        (
            re.compile(row["pattern"], re.I),
            list(map(str, row.get("replace", ()))),
            row.get("multiply", []),
        )
        for row in packaged("study/dataset", "contraries")
    ]


def _contrary(text: str, rng: random.Random) -> str | None:
    """Return a text with one place changed so that it says the contrary; None if no pattern fits."""
    for pattern, texts, factors in rng.sample(_contraries(), len(_contraries())):
        places = list(pattern.finditer(text))
        if not places:
            continue
        place = rng.choice(places)
        if factors:
            number = float(place[1]) * rng.choice(factors)
            start, end, new = *place.span(1), f"{number:.4g}" if number < 1e6 else f"{number:.0f}"
        else:
            start, end, new = *place.span(), place.expand(rng.choice(texts))
        if place[0][:1].isupper():
            new = new[:1].upper() + new[1:]
        changed = text[:start] + new + text[end:]
        if changed != text:
            return changed
    return None


KINDS: dict[str, Callable[[Verdict, Case, Pools, random.Random], dict[str, Any] | None]] = {
    "swapped_doctors": _swap_doctors,
    "other_case": _take_another_case,
    "contradicting_scores": _reverse_scores,
    "cut_off": _cut_off,
    "wrong_knowledge": _turn_knowledge,
}
