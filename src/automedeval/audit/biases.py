"""What verdicts on clean cases tell of a judge's habits: order, length, repeats, attribution, whose answers it favours.

Each check returns figures as statistics, for one bootstrap over cases, or {"reason"} where these verdicts cannot tell. Nothing
is asked of a judge here; what needs changed cases is in `trials`.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from automedeval.audit.rationale_consistency import told_order
from automedeval.audit.trials import ALIKE
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People
from automedeval.meta_evaluation.verdicts import Readings
from automedeval.metrics.lexical import longer_text
from automedeval.rubrics.misattribution import misattributions
from automedeval.stats import agreement
from automedeval.stats.bootstrap import Statistic, divide, mean, ratio
from automedeval.stats.length_control import MOST_MODELS, length_controlled

CHECKS = ("order", "length", "repeats", "attribution", "self_preference")
MOST_SUBSETS = 20  # sets of orders that are averaged, of each size


def audit_clean(
    readings: Readings, checks: Sequence[str], people: People | None = None, own: str | None = None, seed: int = 0
) -> dict[str, Any]:
    """Return the figures of some of `CHECKS`.

    Args:
        people: what people rated, where they did.
        own: the model whose answers are the judge's own.
        seed: which sets of orders are averaged, where there are more than `MOST_SUBSETS`.
    """
    found: dict[str, Any] = {}
    if "order" in checks:
        found["order"] = order(readings, people, seed)
    if "length" in checks:
        found["length"] = length(readings, people)
    if "repeats" in checks and len(np.unique(readings.run)) > 1:
        found["repeats"] = repeats(readings)
    if "attribution" in checks:
        found["attribution"] = attribution(readings)
    if "self_preference" in checks:
        found["self_preference"] = self_preference(readings, people, own)
    return found


def concordance(readings: Readings, people: People) -> Statistic:
    """Return the concordance with people over the pairs that have a valid verdict; how many have none is another figure."""
    judged = readings.relations()
    told = readings.cases.panel.relations(people.scores)
    found = agreement.accuracies(readings.cases.panel, np.where(np.isnan(judged), np.nan, told), judged)["concordance"]
    return replace(found, reason="no pair that people put in an order has a valid verdict")


def order(readings: Readings, people: People | None = None, seed: int = 0) -> dict[str, Any]:
    """Tell what the order in which answers are shown does.

    Returns:
        "flips": of two orders of a pair, how often they put it the other way round; "changes": how often they do not agree,
        ties counted; both with an "_expected" twin; "pairs_of_models": the flips of each two models; "slots": by how much a
        response is valued above the mean of its reading in each slot, in steps, and "slot_span", the largest less the least;
        "first_wins": how often the response shown first is put first, a tie counting half; "averaging": see `averaging`.
    """
    if readings.valid and all(verdict.order == tuple(sorted(verdict.order)) for verdict in readings.valid):
        return {"reason": "every answer stood in its place in the file: its slot and its model cannot be told apart"}
    if len(readings.valid) == 1:
        return {"reason": "there is one reading: what a slot is worth and what its answer is cannot be told apart"}
    panel, cases, unit = readings.panel, readings.cases, readings.unit
    found: dict[str, Any] = _slots(readings, unit)
    key = readings.pairs * (readings.run.max(initial=0) + 1) + readings.run[panel.group[panel.pairs[0]]]
    pairs, of_pair = np.unique(key, return_inverse=True)
    first_seen = np.unique(key, return_index=True)[1]
    number = readings.pairs[first_seen]
    case = cases.panel.case[cases.panel.pairs[0][number]] if len(number) else np.empty(0, int)
    one_order = "every pair was shown in one order only"
    for name, values in (("", readings.own), ("_expected", readings.expected)):
        if np.isnan(values).all():
            continue
        relation = panel.relations(values)
        tally = [np.bincount(of_pair, weights=relation == way, minlength=len(pairs)) for way in (1, -1, 0)]
        readings_of = sum(tally)
        twos = readings_of * (readings_of - 1) / 2
        several = twos > 0
        flips, ties = tally[0] * tally[1], tally[2] * (tally[0] + tally[1])
        for label, count in (("flips", flips), ("changes", flips + ties)):
            share = np.where(several, count / np.maximum(twos, 1), 0.0)
            sums = [np.bincount(case, weights=each, minlength=len(cases)) for each in (share, several)]
            found[f"{label}{name}"] = ratio(*sums, reason=one_order)
        if name == "" or readings.has_own is False:
            found["pairs_of_models"] = _by_models(
                cases, number, case, np.where(several, flips / np.maximum(twos, 1), 0), several
            )
    relation = panel.relations(readings.finest)
    earlier = np.where(readings.slot[panel.pairs[0]] < readings.slot[panel.pairs[1]], 1, -1)
    credit = np.where(np.isnan(relation), 0.0, (relation * earlier + 1) / 2)
    found["first_wins"] = ratio(panel.per_case(credit), panel.per_case(~np.isnan(relation)))
    found["averaging"] = averaging(readings, people, seed)
    return found


def _slots(readings: Readings, unit: float) -> dict[str, Any]:
    panel, values, slots = readings.panel, readings.finest, readings.slot
    count = np.maximum(panel.per_group(np.ones(len(values)), "responses"), 1)
    centred = (values - (panel.per_group(values, "responses") / count)[panel.group]) / unit
    several = count[panel.group] > 1
    columns = []
    for slot in range(int(slots[several].max(initial=-1)) + 1):
        here = several & (slots == slot)
        columns += [panel.per_case(np.where(here, centred, 0.0), "responses"), panel.per_case(here, "responses")]
    if not columns:
        return {
            "slots": [],
            "slot_span": Statistic(np.zeros((panel.cases, 1)), _undefined, 0, "no case has two answers"),
        }
    both = np.column_stack(columns)

    def span(sums: np.ndarray) -> np.ndarray:
        means = divide(sums[:, ::2], sums[:, 1::2])
        return means.max(axis=1) - means.min(axis=1)

    each = [mean(total, known, round(known.sum())) for total, known in zip(columns[::2], columns[1::2])]
    return {"slots": each, "slot_span": Statistic(both, span, int(several.sum()))}


def _by_models(
    cases: Cases, number: np.ndarray, case: np.ndarray, flips: np.ndarray, several: np.ndarray
) -> dict[str, Any]:
    if len(cases.models) > MOST_MODELS:
        return {}
    sides = [cases.model_of[side[number]] for side in cases.panel.pairs]
    found = {}
    for one, two in combinations(range(len(cases.models)), 2):
        here = several & (np.minimum(*sides) == one) & (np.maximum(*sides) == two)
        if here.any():
            sums = [np.bincount(case, weights=each, minlength=len(cases)) for each in (flips * here, here)]
            found[f"{cases.models[one]} : {cases.models[two]}"] = ratio(*sums)
    return found


def averaging(readings: Readings, people: People | None = None, seed: int = 0) -> dict[str, Any]:
    """Tell what averaging orders buys: concordance with people by the mean over 1, 2, … orders, and the gain of all over one.

    The mean is over sets of that many orders, all sets or `MOST_SUBSETS` drawn. Only the first run counts, and the pairs that
    have as many valid readings as most have, so that all sizes of sets are about the same pairs.
    """
    if people is None:
        return {"reason": "without people's ratings nobody knows which order was right"}
    panel, cases = readings.panel, readings.cases
    values = readings.finest
    gaps = values[panel.pairs[0]] - values[panel.pairs[1]]
    shown: dict[int, list[float]] = defaultdict(list)
    first_run = readings.run[panel.group[panel.pairs[0]]] == readings.run.min(initial=0)
    for pair, gap in zip(readings.pairs[first_run].tolist(), gaps[first_run].tolist()):
        shown[pair].append(gap)
    counts = np.bincount([len(each) for each in shown.values()]) if shown else np.zeros(1)
    most = int(counts.argmax())
    if most < 2:
        return {"reason": "the pairs were shown in one order"}
    chosen = np.array(sorted(pair for pair, each in shown.items() if len(each) >= most), int)
    table = np.array([shown[pair][:most] for pair in chosen.tolist()])
    rated = people.scores
    left, right = (rated[side[chosen]] for side in cases.panel.pairs)
    told = np.where(np.isnan(left - right), np.nan, np.where(np.abs(left - right) <= 1e-9, 0.0, np.sign(left - right)))
    untied = ~np.isnan(told) & (told != 0)
    case = cases.panel.case[cases.panel.pairs[0][chosen]]
    total = np.bincount(case, weights=untied, minlength=len(cases))
    rng, credits = random.Random(seed), []
    for size in range(1, most + 1):
        sets = list(combinations(range(most), size))
        sets = sets if len(sets) <= MOST_SUBSETS else rng.sample(sets, MOST_SUBSETS)
        credit = np.zeros(len(cases))
        for some in sets:
            average = table[:, some].mean(axis=1)
            way = np.where(np.abs(average) <= 1e-9, 0.0, np.sign(average))
            right_way = np.where(untied, (way == told) + 0.5 * (way == 0), 0.0)
            credit += np.bincount(case, weights=right_way, minlength=len(cases)) / len(sets)
        credits.append(credit)
    no_order = "people tied or did not rate these pairs"
    return {
        "orders": most,
        "concordance": [ratio(credit, total, reason=no_order) for credit in credits],
        "gain": mean(credits[-1] - credits[0], total, int(total.sum()), no_order, (-1.0, 1.0)),
    }


def _undefined(sums: np.ndarray) -> np.ndarray:
    return np.full(len(sums), np.nan)


def length(readings: Readings, people: People | None = None) -> dict[str, Any]:
    """Tell how length sways the judge: correlations with words, how often the longer wins, and win rates at equal length.

    With ratings the same of people stands beside it under "people": longer answers may be better ones.
    """
    cases = readings.cases
    words = longer_text(cases.records)
    found = _length(cases, words, readings.mean_values, readings.relations())
    if any(verdict.choices for verdict in readings.valid):
        for name in ("spearman", "spearman_within_case"):
            found.pop(name)  # shares of criteria won are about a pair, and of no meaning across pairs
    if people is not None:
        found["people"] = _length(cases, words, people.scores, cases.panel.relations(people.scores))
        found["people"].pop("win_rates", None)
    return found


def _length(cases: Cases, words: np.ndarray, values: np.ndarray, relation: np.ndarray) -> dict[str, Any]:
    panel = cases.panel
    first, second = panel.pairs
    longer = panel.relations(words)
    found: dict[str, Any] = {
        name: statistic
        for name, statistic in agreement.correlations(panel, words, values).items()
        if name in ("spearman", "spearman_within_case")
    }
    known = np.where(np.isnan(relation), np.nan, longer)
    found["prefers_longer"] = agreement.accuracies(panel, known, relation)["concordance"]
    models = [cases.model_of[side] for side in panel.pairs]
    case = panel.case[first] if len(first) else np.empty(0, int)
    return found | length_controlled(*models, words[first] - words[second], relation, case, len(cases), cases.models)


def repeats(readings: Readings) -> dict[str, Any]:
    """Tell how often two runs of one request gave the same: "tied" by the judge's own scores, and the mean "gap" in steps."""
    cases, unit = readings.cases, readings.unit
    places: dict[tuple, list[slice]] = defaultdict(list)
    edges = np.concatenate([[0], np.cumsum(np.bincount(readings.panel.group, minlength=len(readings.valid)))])
    for number, verdict in enumerate(readings.valid):
        places[verdict.case_id, verdict.order, verdict.pair].append(slice(edges[number], edges[number + 1]))
    same, gap, count = np.zeros((3, len(cases)))
    values, own = readings.finest, readings.own
    for (case_id, *_), slices in places.items():
        for one, two in combinations(slices, 2):
            case = cases.index[case_id]
            apart = np.abs(own[one] - own[two])
            same[case] += (apart <= (1e-9 if readings.has_own else ALIKE * unit)).all()
            gap[case] += np.abs(values[one] - values[two]).max() / unit
            count[case] += 1
    reason = "no request was answered twice"
    return {"tied": ratio(same, count, reason=reason), "gap": mean(gap, count, int(count.sum()), reason)}


def attribution(readings: Readings) -> dict[str, Any]:
    """Tell how often a rationale credits a doctor with another's words, and how often the scores contradict it.

    Of the orders in which a case was read, the first valid one of every run is looked at: the others are about the same texts.

    Returns:
        "marked": rationales with a sentence that `attribution.misattributions` marks; "marks": how many sentences; "coverage":
        pairs of answers about which `tone.told_order` reads an order from the rationale; of those, "consistent": ordered alike
        by the scores, a tie counting half, and "contradicted": the other way round.
    """
    cases = readings.cases
    marked, marks, written, pairs, spoken, alike, against = np.zeros((7, len(cases)))
    edges = np.concatenate([[0], np.cumsum(np.bincount(readings.panel.group, minlength=len(readings.valid)))])
    seen: set[tuple] = set()
    for number, verdict in enumerate(readings.valid):
        reading = (verdict.case_id, frozenset(verdict.order), verdict.run)
        if reading in seen or not (verdict.rationale or "").strip():
            continue
        seen.add(reading)
        case = cases.index[verdict.case_id]
        found = misattributions(cases.records[case], verdict)
        written[case] += 1
        marked[case] += bool(found)
        marks[case] += len(found)
        shown = len(verdict.order)
        values = dict(zip(sorted(verdict.order), readings.own[edges[number] : edges[number + 1]].tolist()))
        pairs[case] += shown * (shown - 1) / 2
        for (one, two), way in told_order(verdict.rationale, shown).items():
            gap = values[verdict.order[one]] - values[verdict.order[two]]
            spoken[case] += 1
            alike[case] += 0.5 if abs(gap) <= 1e-9 else (gap > 0) == (way > 0)
            against[case] += abs(gap) > 1e-9 and (gap > 0) != (way > 0)
    if not written.any():
        return {"reason": "no verdict holds a rationale"}
    silent = "the rule reads no order from any rationale"
    return {
        "marked": ratio(marked, written),
        "marks": mean(marks, written, int(written.sum())),
        "coverage": ratio(spoken, pairs),
        "consistent": ratio(alike, spoken, reason=silent),
        "contradicted": ratio(against, spoken, reason=silent),
    }


def self_preference(readings: Readings, people: People | None, own: str | None = None) -> dict[str, Any]:
    """Tell how agreement with people depends on who wrote the answer, and whom the judge favours.

    Returns:
        {"models": {model: {"concordance", "favour"}}}: concordance over the pairs that it is part of, and how much oftener than
        people the judge puts its answers first, ties counting half (-1 to 1); "own", the favour of the judge's own model.
    """
    cases = readings.cases
    if own is not None and own not in cases.models:
        return {"reason": f"no answer is by {own!r}"}
    if people is None:
        return {"reason": "without people's ratings it is not known whose answers are better"}
    if len(cases.models) > MOST_MODELS and own is None:
        return {"reason": f"{len(cases.models)} model names: more than {MOST_MODELS}, or no models at all"}
    panel = cases.panel
    told, judged = panel.relations(people.scores), readings.relations()
    both = ~np.isnan(told) & ~np.isnan(judged)
    sides = [cases.model_of[side] for side in panel.pairs]
    found: dict[str, Any] = {"models": {}}
    names = [own] if len(cases.models) > MOST_MODELS else cases.models
    for name in names:
        model = cases.models.index(name)
        here = (sides[0] == model) != (sides[1] == model)
        toward = np.where(sides[0] == model, 1, -1)
        excess = np.where(here & both, (np.nan_to_num(judged) - np.nan_to_num(told)) * toward / 2, 0.0)
        known = panel.per_case(here & both)
        found["models"][name] = {
            "concordance": agreement.accuracies(panel, np.where(here, told, np.nan), judged)["concordance"],
            "favour": mean(panel.per_case(excess), known, int(known.sum()), "no rated pair", (-1.0, 1.0)),
        }
    if own is not None:
        found["own"] = found["models"][own]["favour"]
    return found
