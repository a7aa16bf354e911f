"""Make preference pairs of a judge's verdicts, in the columns of TRL's DPOTrainer and RewardTrainer."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import fmean

import numpy as np

from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import JsonObject, RecordError
from automedeval.records.messages import as_turns

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
            f"the rubric {judge.rubric_name} of these choices was not found where the run had its "
            "file: what they mean is open"
        )
    values = defaultdict[int, dict[int, float]](dict)
    for verdict, response, value in zip(
        judge.panel.group.tolist(), judge.response.tolist(), judge.best.tolist()
    ):
        if not (np.isnan(value) or judge.cases.empty[response]):
            values[response][verdict] = value
    pairs = []
    reasons = Counter[str]()
    for number in judge.cases.file_order:
        if judge.given[number]:
            pair = _pair(judge, number, values, least_gap)
            if isinstance(pair, str):
                reasons[pair] += 1
            else:
                pairs.append(pair)
    return pairs, reasons


def _pair(judge: VerdictTable, number: int, values: Values, least_gap: float) -> JsonObject | str:
    """Return the pair of a case, or why there is none."""
    if not judge.verdicts_valid[number]:
        return "no valid verdict"
    places = range(*judge.cases.start[number : number + 2].tolist())
    means = {place: fmean(values[place].values()) for place in places if place in values}
    if len(means) < 2:
        return "no two responses with a score"
    highest = max(means, key=means.__getitem__)
    lowest = min(means, key=means.__getitem__)
    if lowest == highest:  # all are equal
        lowest = max(means)
    margin = round(means[highest] - means[lowest], 9)
    best = values[highest]
    worst = values[lowest]
    together = best.keys() & worst.keys()
    if not margin and all(best[verdict] >= worst[verdict] for verdict in together):
        return "a tie"
    if 0 < margin <= least_gap:
        return f"a gap of {least_gap:g} or less"
    if judge.of_pairs and not together:
        return "never compared"
    if any(best[verdict] <= worst[verdict] for verdict in together):
        return "verdicts that disagree"
    case, chosen = judge.cases.at(highest)
    _, rejected = judge.cases.at(lowest)
    if chosen.text.strip() == rejected.text.strip():
        return "equal texts"
    return {
        "prompt": as_turns(case.question),
        "chosen": [{"role": "assistant", "content": chosen.text}],
        "rejected": [{"role": "assistant", "content": rejected.text}],
        "margin": margin,
        "case_id": case.id,
        "chosen_model": chosen.model,
        "rejected_model": rejected.model,
    }
