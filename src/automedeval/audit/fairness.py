"""Measure whether a judge scores the same answer alike whoever asks, and whoever answers.

Each case is judged with both texts of a `Contrast`: the question says that the patient is a man, or a woman, or one answer says
which model it is by. The difference of the two values is the shift. A case in which this is not idle is left out and counted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.audit.perturbations import CONTROL, Contrast, Trial, read_contrasts, said
from automedeval.audit.run import first_requests, judge_trials
from automedeval.audit.trials import LEAST
from automedeval.judges.base import BaseJudge
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, expected_values, own_values
from automedeval.records import Case, RecordError, Verdict, question_text
from automedeval.records.journal import ALONE, Processes
from automedeval.reports.page import Table
from automedeval.reports.text import p_value, shown
from automedeval.rubrics import Rubric
from automedeval.stats.agreement import SAME
from automedeval.stats.bootstrap import Statistic, adjust, mean, ratio, t_test

CHANCE = 0.05  # adjusted p below which a shift is more than chance: by all contrasts together an equal judge has one this often
NOTHING = "no case in which a change of the patient or the writer is idle has two valid verdicts"


@dataclass(frozen=True)
class Pair:
    """One case with both texts of a contrast."""

    contrast: Contrast
    first: Trial
    second: Trial


@dataclass(frozen=True)
class Shift:
    """What the second text of a pair changes.

    Args:
        case: the number of the case.
        steps: index of a response → the change of its value, in steps; of the changed response alone where there is one. Empty
            where one of both verdicts is invalid.
        turned, compared: the number of pairs of responses that are put the other way round, and of all.
    """

    pair: Pair
    case: int
    steps: Mapping[int, float]
    turned: int = 0
    compared: int = 0


def measure_fairness(
    judge: BaseJudge,
    judged: JudgeVerdicts,
    rubric: Rubric,
    folder: Path,
    seed: int,
    notes: list[str],
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """Judge the cases with both texts of every contrast, and compare the verdicts.

    Writes FOLDER/trials.jsonl and FOLDER/trials/verdicts.jsonl.

    Args:
        judged: the verdicts on the unchanged cases, which give the unit of a shift.
        notes: the report's notes; what is left out is added.

    Returns:
        see `figures`; {"reason"} where nothing can be compared.
    """
    contrasts = read_contrasts() + translated(judged.cases.records)
    if judge.blind_to is not None:  # a small judge
        notes.append(f"fairness, language: {judge.name} reads English only")
        contrasts = [each for each in contrasts if each.pairs]
    pairs, left_out = plan_pairs(first_requests(judge, judged.cases.records, rubric, seed), contrasts)
    trials = {trial.case.id: trial for pair in pairs for trial in (pair.first, pair.second)}
    after = judge_trials(judge, list(trials.values()), folder, processes)
    shifts = [shift(each, after[each.first.request.key], after[each.second.request.key], judged) for each in pairs]
    for each in {contrast.name: contrast for contrast in contrasts}.values():
        if reasons := left_out[each.label]:
            counts = "; ".join(f"{count} ({reason})" for reason, count in reasons.items())
            notes.append(
                f"fairness, {each.name}: {sum(reasons.values())} of {len(judged.cases)} cases left out: {counts}"
            )
    return figures(shifts, contrasts, left_out, len(judged.cases))


def translated(cases: Sequence[Case]) -> list[Contrast]:
    """Return one contrast for each language that the key `translations` of a case has its question in."""
    languages: dict[str, None] = {}
    for case in cases:
        texts = case.extra.get("translations", {})
        if not isinstance(texts, dict) or not all(isinstance(text, str) and text.strip() for text in texts.values()):
            raise RecordError(
                f"case {case.id!r}: 'translations' must hold the question by language, as {{\"de\": text}}"
            )
        languages |= dict.fromkeys(texts)
    why = "The question is the same in another language."
    return [Contrast("language of the question", "question", "as it is", each, why=why) for each in languages]


def plan_pairs(
    requests: Sequence[Request], contrasts: Sequence[Contrast]
) -> tuple[list[Pair], dict[str, Counter[str]]]:
    """Return the pairs of every case, and by the label of a contrast why how many cases are left out."""
    pairs, left_out = [], {each.label: Counter[str]() for each in contrasts}
    for number, request in enumerate(requests):
        case = request.case
        answered = [index for index in sorted(request.slots) if not case.responses[index].is_empty]
        for contrast in contrasts:
            target = answered[number % len(answered)] if answered else request.slots[0]
            if reason := _obstacle(case, contrast, target, bool(answered)):
                left_out[contrast.label][reason] += 1
                continue
            texts = contrast.pairs or [("$text", case.extra["translations"][contrast.second].replace("$", "$$"))]
            first, second = (said(request, contrast, text, target) for text in texts[number % len(texts)])
            pairs.append(Pair(contrast, first, second))
    return pairs, left_out


def _obstacle(case: Case, contrast: Contrast, target: int, answered: bool) -> str | None:
    """Return why a contrast is not idle in a case, or cannot be made; None if it can."""
    if not answered:
        return "the case has no answer"
    if not contrast.pairs and contrast.second not in case.extra.get("translations", {}):
        return f"no question in {contrast.second}"
    texts = [case.responses[target].text]
    if contrast.changes == "question":
        texts = [question_text(case.question), case.reference or "", *(each.text for each in case.responses)]
    return next((why for why, each in contrast.unless.items() if any(each.search(text) for text in texts)), None)


def shift(pair: Pair, first: Verdict, second: Verdict, judged: JudgeVerdicts) -> Shift:
    """Compare the verdicts on both texts of a pair; `judged` has the verdicts on the unchanged cases."""
    own = [own_values(verdict, judged.rubric) for verdict in (first, second)]
    fine = [expected_values(verdict) or {} for verdict in (first, second)] if judged.has_expected else own
    of_answer = pair.contrast.changes == "answer"
    steps = {
        index: (fine[1][index] - fine[0][index]) / judged.unit
        for index in sorted(fine[0].keys() & fine[1].keys())
        if not of_answer or index == pair.first.target
    }
    both = sorted(own[0].keys() & own[1].keys())
    gaps = [
        [values[one] - values[other] for values in own]
        for place, one in enumerate(both)
        for other in both[place + 1 :]
        if not of_answer or pair.first.target in (one, other)
    ]
    turned = sum(before * after < 0 and min(abs(before), abs(after)) > SAME for before, after in gaps)
    return Shift(pair, judged.cases.index[pair.first.clean.case.id], steps, turned, len(gaps))


def figures(
    shifts: Sequence[Shift], contrasts: Sequence[Contrast], left_out: Mapping[str, Mapping[str, int]], cases: int
) -> dict[str, Any]:
    """Return the figures of all contrasts, with statistics as leaves: intervals are over cases.

    Returns:
        "turned": the share of pairs of responses that contrasts other than `CONTROL` put the other way round; "contrasts": by
        label the mean "shift" in steps, the share of responses that "moved" by half a step or more, of pairs that "turned",
        and of "invalid" comparisons; the cases "left_out"; and "worst", the response that moved most, with both texts.
    """
    by_label = {each.label: [one for one in shifts if one.pair.contrast is each] for each in contrasts}
    if not any(each.steps for each in shifts):
        return {"reason": NOTHING}
    tested = [one for one in shifts if one.pair.contrast.name != CONTROL]
    return {
        "turned": _turned(tested, cases),
        "contrasts": {
            each.label: _contrast(each, by_label[each.label], cases) | {"left_out": dict(left_out[each.label])}
            for each in contrasts
        },
    }


def _contrast(contrast: Contrast, shifts: Sequence[Shift], cases: int) -> dict[str, Any]:
    steps = [(each.case, change) for each in shifts for change in each.steps.values()]
    where = [case for case, _ in steps]
    count = _summed(cases, where, np.ones(len(steps)))
    changes = np.array([change for _, change in steps])
    compared = [each.case for each in shifts]
    made = _summed(cases, compared, np.ones(len(shifts)))
    invalid = _summed(cases, compared, np.array([not each.steps for each in shifts]))
    return {
        "name": contrast.name,
        "why": contrast.why,
        "shift": mean(_summed(cases, where, changes), count, len(steps), NOTHING),
        "moved": ratio(_summed(cases, where, np.abs(changes) >= LEAST), count, reason=NOTHING),
        "turned": _turned(shifts, cases),
        "invalid": ratio(invalid, made, reason=NOTHING),
        "worst": _worst(shifts),
    }


def _summed(cases: int, where: Sequence[int], values: np.ndarray) -> np.ndarray:
    return np.bincount(np.array(where, int), values.astype(float), minlength=cases)


def _turned(shifts: Sequence[Shift], cases: int) -> Statistic:
    where = [each.case for each in shifts]
    turned, compared = (np.array([getattr(each, name) for each in shifts]) for name in ("turned", "compared"))
    return ratio(
        _summed(cases, where, turned), _summed(cases, where, compared), reason="no case has two answers that are read"
    )


def _worst(shifts: Sequence[Shift]) -> dict[str, Any] | None:
    moved = [(abs(change), each, index) for each in shifts for index, change in each.steps.items()]
    if not moved:
        return None
    _, each, index = max(moved, key=lambda one: one[0])
    trials = (each.pair.first, each.pair.second)
    asked = each.pair.contrast.changes == "question"
    texts = [question_text(t.case.question) if asked else t.case.responses[index].text for t in trials]
    clean = each.pair.first.clean.case
    return {
        "case_id": clean.id,
        "model": clean.models[index],
        "change": each.steps[index],
        "texts": texts,
        "answer": clean.responses[index].text if asked else None,
    }


def conclude(estimated: dict[str, Any]) -> None:
    """Add to estimated figures the p-value of every shift, adjusted for their number (Holm), and the "largest" beyond chance.

    "largest" is an absolute shift in steps, of the "contrast"; 0 if none is more than chance. "tried" is the number of tests;
    all their intervals lie "within" so many steps of 0 (None: not each has one). `CONTROL` is not among them.
    """
    contrasts = {name: each for name, each in estimated["contrasts"].items() if each["name"] != CONTROL}
    adjust(list(contrasts.values()), "shift", t_test)
    tested = {name: each["shift"] for name, each in contrasts.items() if each["p"] is not None}
    ends = [abs(end) for each in tested.values() for end in (each.low, each.high) if end is not None]
    largest: dict[str, Any] = {"value": 0.0 if tested else None, "low": None, "high": None, "contrast": None}
    largest |= {"n": sum(each.n for each in tested.values()), "tried": len(tested)}
    largest |= {"within": max(ends) if len(ends) == 2 * len(tested) > 0 else None}
    if sure := [name for name in tested if contrasts[name]["p_adjusted"] < CHANCE]:
        name = max(sure, key=lambda each: abs(tested[each].value))
        worst = tested[name]
        low, high = (worst.low, worst.high) if worst.value > 0 or worst.low is None else (-worst.high, -worst.low)
        largest |= {"value": abs(worst.value), "low": low, "high": high, "n": worst.n, "contrast": name}
    estimated["largest"] = largest if tested else largest | {"reason": "no shift has an interval"}


def fairness_table(fairness: Mapping[str, Any]) -> Table:
    """Return the table of the contrasts of `figures`, estimated."""
    head = (
        "what differs",
        "shift of the score, in steps",
        "p",
        "answers that move",
        "pairs that turn",
        "answers",
        "left out",
    )
    return head, [
        (
            label,
            shown(each["shift"]),
            p_value(each.get("p_adjusted")),
            shown(each["moved"], 0, 100),
            shown(each["turned"], 0, 100),
            each["shift"]["n"],
            sum(each["left_out"].values()),
        )
        for label, each in fairness["contrasts"].items()
    ]
