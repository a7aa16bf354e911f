"""Make preference pairs of a judge's verdicts, in the columns of TRL's DPOTrainer and RewardTrainer."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

import numpy as np

from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import JsonObject, RecordError, Response

Values = Mapping[int, Mapping[int, float]]  # response → verdict → value


def preference_pairs(
    judge: VerdictTable, least_gap: float
) -> tuple[list[JsonObject], Counter[str]]:
    """Return a pair of each case, and reason → number of judged cases without one.

    The response with the highest value is chosen, the one with the lowest rejected, if they differ by more than `least_gap`. A
    value is the mean score over the valid verdicts, or, of a judge that compares pairs, the mean share of criteria won. Empty
    and unread responses are in no pair. RecordError for choices by a rubric that was not found: which of its criteria name the
    worse response is not known.
    """
    if judge.of_pairs and judge.rubric is None:
        raise RecordError(
            f"the rubric {judge.rubric_name} of these choices was not found: what they mean is open"
        )
    values: dict[int, dict[int, float]] = defaultdict(dict)
    for verdict, response, value in zip(
        judge.panel.group.tolist(), judge.response.tolist(), judge.best.tolist()
    ):
        if not (np.isnan(value) or judge.cases.empty[response]):
            values[response][verdict] = value
    pairs = []
    reasons: Counter[str] = Counter()
    for number in judge.cases.file_order:
        if judge.given[number]:
            pair = _pair(judge, number, values, least_gap)
            if isinstance(pair, str):
                reasons[pair] += 1
            else:
                pairs.append(pair)
    return pairs, reasons


class _Scored(NamedTuple):
    """A response with the mean of its values, and these by the number of the verdict."""

    response: Response
    mean: float
    by_verdict: Mapping[int, float]


def _pair(judge: VerdictTable, number: int, values: Values, least_gap: float) -> JsonObject | str:
    """Return the pair of a case, or why there is none."""
    if not judge.verdicts_valid[number]:
        return "no valid verdict"
    case = judge.cases.records[number]
    scored = []
    for place, response in enumerate(case.responses, int(judge.cases.start[number])):
        if place in values:
            scored.append(_Scored(response, fmean(values[place].values()), values[place]))
    if len(scored) < 2:
        return "no two responses with a score"
    chosen = max(scored, key=attrgetter("mean"))
    rejected = min(scored, key=attrgetter("mean"))
    margin = round(chosen.mean - rejected.mean, 9)
    if margin <= least_gap:
        return f"a gap of {least_gap:g} or less" if margin else "a tie"
    together = chosen.by_verdict.keys() & rejected.by_verdict.keys()
    if judge.of_pairs and not together:
        return "never compared"
    if any(chosen.by_verdict[verdict] <= rejected.by_verdict[verdict] for verdict in together):
        return "verdicts that disagree"
    if chosen.response.text.strip() == rejected.response.text.strip():
        return "equal texts"
    prompt = case.question
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    return {
        "prompt": prompt,
        "chosen": [{"role": "assistant", "content": chosen.response.text}],
        "rejected": [{"role": "assistant", "content": rejected.response.text}],
        "margin": margin,
        "case_id": case.id,
        "chosen_model": chosen.response.model,
        "rejected_model": rejected.response.model,
    }
