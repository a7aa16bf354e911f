"""Measure a judge's biases from its verdicts on unchanged cases: order, length, repeats, attribution, self-preference.

Each check returns figures as statistics, for one bootstrap over cases, or {"reason"} where these verdicts do not allow it.
Checks that need changed cases are in `trials`.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from automedeval.audit.trials import ALIKE
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import Baseline, JudgeVerdicts
from automedeval.metrics.lexical import longer_text
from automedeval.rubrics.misattribution import misattributions
from automedeval.stats import agreement
from automedeval.stats.agreement import SAME, relation_of
from automedeval.stats.bootstrap import Statistic, divide, mean, ratio, undefined
from automedeval.stats.length_control import MOST_MODELS, length_controlled

CHECKS = ("order", "length", "repeats", "attribution", "self_preference")
MOST_SUBSETS = 20  # sets of orders that are averaged, of each size


def audit_clean(
    judge: JudgeVerdicts, checks: Sequence[str], people: People | None = None, own: str | None = None, seed: int = 0
) -> dict[str, Any]:
    """Return the figures of some of `CHECKS`; `own` is the judge's own model, `seed` is for `averaging`."""
    measures = {
        "order": lambda: order(judge, people, seed),
        "length": lambda: length(judge, people),
        "repeats": lambda: repeats(judge),
        "attribution": lambda: attribution(judge),
        "self_preference": lambda: self_preference(judge, people, own),
    }
    able = [check for check in CHECKS if check in checks and (check != "repeats" or len(judge.runs) > 1)]
    return {check: measures[check]() for check in able}


def concordance(judge: JudgeVerdicts, people: People) -> Statistic:
    """Return the concordance with people over the pairs that have a valid verdict."""
    judged, panel = judge.pair_relations, judge.cases.panel
    rated = np.where(np.isnan(judged), np.nan, panel.relations(people.scores))
    found = agreement.concordance(panel, rated, judged)
    return replace(found, reason="no pair that people put in an order has a valid verdict")


def beside_baselines(
    judge: JudgeVerdicts, people: People, baselines: Sequence[Baseline]
) -> dict[str, dict[str, Statistic]]:
    """Return for each baseline its concordance with people, and the judge's, over the pairs that both have an order for."""
    judged, panel, found = judge.pair_relations, judge.cases.panel, {}
    for baseline in baselines:
        counted = panel.relations(baseline.expected)
        rated = np.where(np.isnan(judged) | np.isnan(counted), np.nan, panel.relations(people.scores))
        pairs = {"concordance": counted, "judge": judged}
        found[baseline.name] = {
            name: replace(agreement.concordance(panel, rated, relation), reason="no pair to compare on")
            for name, relation in pairs.items()
        }
    return found


def order(judge: JudgeVerdicts, people: People | None = None, seed: int = 0) -> dict[str, Any]:
    """Measure the effect of the order in which responses are shown.

    Returns:
        "flips", "changes": of two orders of a pair, the share with opposite relations, and with different ones; both also from
        expected scores ("_expected"); "pairs_of_models": the flips of each two models; "slots": by how many steps values in
        each slot lie above the mean of their verdict, and "slot_span", the largest less the smallest; "first_wins": the share
        of pairs in which the response shown first is preferred, a tie being a half; "averaging": see `averaging`.
    """
    if judge.valid and all(verdict.order == tuple(sorted(verdict.order)) for verdict in judge.valid):
        return {"reason": "every response was shown in the order of the file: slots and models cannot be separated"}
    if len(judge.valid) == 1:
        return {"reason": "there is one valid verdict: the effects of slots and of responses cannot be separated"}
    panel = judge.panel
    found: dict[str, Any] = _slots(judge)
    for name, values in (("", judge.own), ("_expected", judge.expected_score)):
        if np.isnan(values).all() or (name and not judge.has_expected):
            continue
        above, below, level = judge.tally(panel.relations(values), (1, -1, 0))
        count = above + below + level
        several = count > 1
        twos = np.maximum(count * (count - 1) / 2, 1)
        flips, ties = above * below / twos, level * (above + below) / twos
        for label, share in (("flips", flips), ("changes", flips + ties)):
            sums = judge.per_case(share), judge.per_case(several)
            found[f"{label}{name}"] = ratio(*sums, reason="every pair was shown in one order only")
        if name == "" or not judge.has_own:
            found["pairs_of_models"] = _by_models(judge, flips, several)
    relation = panel.relations(judge.finest)
    earlier = np.where(judge.slot[panel.pairs[0]] < judge.slot[panel.pairs[1]], 1, -1)
    credit = np.where(np.isnan(relation), 0.0, (relation * earlier + 1) / 2)
    found["first_wins"] = ratio(panel.per_case(credit), panel.per_case(~np.isnan(relation)))
    found["averaging"] = averaging(judge, people, seed)
    return found


def _slots(judge: JudgeVerdicts) -> dict[str, Any]:
    effects = judge.slot_effects(judge.finest / judge.unit)
    if not len(effects):
        return {"slots": [], "slot_span": undefined(judge.panel.cases, 0, "no case has two responses")}

    def span(sums: np.ndarray) -> np.ndarray:
        means = divide(sums[:, ::2], sums[:, 1::2])
        return means.max(axis=1) - means.min(axis=1)

    each = [mean(total, known, round(known.sum())) for total, known in effects]
    return {"slots": each, "slot_span": Statistic(np.concatenate(effects).T, span, round(effects[:, 1].sum()))}


def _by_models(judge: JudgeVerdicts, flips: np.ndarray, several: np.ndarray) -> dict[str, Any]:
    """Return the share of flips of each two models; the arrays have the groups of `JudgeVerdicts.pair_runs`."""
    cases = judge.cases
    if len(cases.models) > MOST_MODELS:
        return {}
    sides = [cases.model_of[side[judge.pair_runs[1]]] for side in cases.panel.pairs]
    found = {}
    for one, two in combinations(range(len(cases.models)), 2):
        here = several & (np.minimum(*sides) == one) & (np.maximum(*sides) == two)
        if here.any():
            found[f"{cases.models[one]} : {cases.models[two]}"] = ratio(
                judge.per_case(flips * here), judge.per_case(here)
            )
    return found


def averaging(judge: JudgeVerdicts, people: People | None = None, seed: int = 0) -> dict[str, Any]:
    """Return concordance with people by the mean over 1, 2, … orders, and "gain", that of all orders less that of one.

    That of a number of orders is the mean over all sets of so many orders, or over `MOST_SUBSETS` drawn ones. All sizes of sets
    are about the same pairs: those of the first run with at least the most frequent number of valid verdicts.
    """
    if people is None:
        return {"reason": "without people's ratings the right order is not known"}
    panel, cases, values = judge.panel, judge.cases, judge.finest
    gaps = values[panel.pairs[0]] - values[panel.pairs[1]]
    shown: dict[int, list[float]] = defaultdict(list)
    use = ~np.isnan(gaps) & (judge.run[panel.group[panel.pairs[0]]] == min(judge.runs, default=0))
    for pair, gap in zip(judge.pairs[use].tolist(), gaps[use].tolist()):
        shown[pair].append(gap)
    counts = np.bincount([len(each) for each in shown.values()]) if shown else np.zeros(1)
    most = int(counts.argmax())
    if most < 2:
        return {"reason": "the pairs were shown in one order"}
    chosen = np.array(sorted(pair for pair, each in shown.items() if len(each) >= most), int)
    table = np.array([shown[pair][:most] for pair in chosen.tolist()])
    rated = cases.panel.relations(people.scores)[chosen]
    untied = ~np.isnan(rated) & (rated != 0)
    case = cases.panel.case[cases.panel.pairs[0][chosen]]
    total = np.bincount(case, untied, len(cases))
    rng, credits = random.Random(seed), []
    for size in range(1, most + 1):
        sets = list(combinations(range(most), size))
        sets = sets if len(sets) <= MOST_SUBSETS else rng.sample(sets, MOST_SUBSETS)
        credit = np.zeros(len(cases))
        for some in sets:
            way = relation_of(table[:, some].mean(axis=1))
            right = np.where(untied, (way == rated) + 0.5 * (way == 0), 0.0)
            credit += np.bincount(case, right, len(cases)) / len(sets)
        credits.append(credit)
    no_order = "people tied or did not rate these pairs"
    return {
        "orders": most,
        "concordance": [ratio(credit, total, reason=no_order) for credit in credits],
        "gain": mean(credits[-1] - credits[0], total, int(total.sum()), no_order, (-1.0, 1.0)),
    }


def length(judge: JudgeVerdicts, people: People | None = None) -> dict[str, Any]:
    """Measure the effect of length in words, and under "people" the same in people's ratings: longer may be better."""
    cases = judge.cases
    words = longer_text(cases.records)
    found = _length(cases, words, judge.per_response(judge.finest), judge.pair_relations)
    if judge.criteria:
        for name in ("spearman", "spearman_within_case"):
            found.pop(name)  # shares of criteria won belong to a pair, and do not compare across pairs
    if people is not None:
        found["people"] = _length(cases, words, people.scores, cases.panel.relations(people.scores))
        found["people"].pop("win_rates", None)
    return found


def _length(cases: Cases, words: np.ndarray, values: np.ndarray, relation: np.ndarray) -> dict[str, Any]:
    panel = cases.panel
    first, second = panel.pairs
    longer = panel.relations(words)
    correlations = agreement.correlations(panel, words, values)
    found: dict[str, Any] = {name: correlations[name] for name in ("spearman", "spearman_within_case")}
    known = np.where(np.isnan(relation), np.nan, longer)
    found["prefers_longer"] = agreement.concordance(panel, known, relation)
    case, models = panel.case[first], cases.model_of
    gaps = words[first] - words[second]
    return found | length_controlled(models[first], models[second], gaps, relation, case, len(cases), cases.models)


def repeats(judge: JudgeVerdicts) -> dict[str, Any]:
    """Compare two runs of one request: the share that is "tied" by the judge's own values, and the mean "gap" in steps.

    Verdicts that lack a value for a response are left out.
    """
    unit = judge.unit
    runs: dict[tuple, list[slice]] = defaultdict(list)
    for case, verdict, entries in zip(judge.case_of.tolist(), judge.verdicts, judge.entries):
        if verdict.valid and not np.isnan(judge.own[entries] + judge.finest[entries]).any():
            runs[case, verdict.order, verdict.pair].append(entries)
    same, gap, count = np.zeros((3, len(judge.cases)))
    for (case, *_), slices in runs.items():
        for one, two in combinations(slices, 2):
            apart = np.abs(judge.own[one] - judge.own[two])
            same[case] += (apart <= (SAME if judge.has_own else ALIKE * unit)).all()
            gap[case] += np.abs(judge.finest[one] - judge.finest[two]).max() / unit
            count[case] += 1
    reason = "no request was answered twice"
    return {"tied": ratio(same, count, reason=reason), "gap": mean(gap, count, int(count.sum()), reason)}


def attribution(judge: JudgeVerdicts) -> dict[str, Any]:
    """Return the share of rationales with sentences that `rubrics.misattribution` marks, and their mean number."""
    cases = judge.cases
    marked, marks, written = np.zeros((3, len(cases)))
    seen: set[tuple] = set()
    for case, verdict in zip(judge.case_of.tolist(), judge.verdicts):
        # Of several orders of one case only the first valid verdict of every run counts: the others are about the same texts.
        texts = (case, frozenset(verdict.order), verdict.run)
        if texts in seen or not verdict.valid or not (verdict.rationale or "").strip():
            continue
        seen.add(texts)
        found = misattributions(cases.records[case], verdict)
        written[case] += 1
        marked[case] += bool(found)
        marks[case] += len(found)
    if not written.any():
        return {"reason": "no verdict holds a rationale"}
    return {"marked": ratio(marked, written), "marks": mean(marks, written, int(written.sum()))}


def self_preference(judge: JudgeVerdicts, people: People | None, own: str | None = None) -> dict[str, Any]:
    """Return, by model, concordance and "favour" over the pairs with a response of the model; "own" is that of the judge's own.

    Both are over the pairs that people rated and that have a valid verdict. Favour is the share of pairs that a model wins by
    the judge less the share by people, ties being a half (-1 to 1).
    """
    cases = judge.cases
    if own is not None and own not in cases.models:
        return {"reason": f"no response is by {own!r}"}
    if people is None:
        return {"reason": "without people's ratings it is not known which responses are better"}
    named = list(cases.models) if len(cases.models) <= MOST_MODELS else [own] if own is not None else []
    if not named:
        return {"reason": f"{len(cases.models)} model names: more than {MOST_MODELS}, or the names are not models"}
    panel = cases.panel
    rated, judged = panel.relations(people.scores), judge.pair_relations
    both = ~np.isnan(rated) & ~np.isnan(judged)
    sides = [cases.model_of[side] for side in panel.pairs]
    models = {}
    for name in named:
        model = cases.models.index(name)
        here = (sides[0] == model) != (sides[1] == model)
        toward = np.where(sides[0] == model, 1, -1)
        excess = np.where(here & both, (np.nan_to_num(judged) - np.nan_to_num(rated)) * toward / 2, 0.0)
        known = panel.per_case(here & both)
        models[name] = {
            "concordance": agreement.concordance(panel, np.where(here & both, rated, np.nan), judged),
            "favour": mean(panel.per_case(excess), known, int(known.sum()), "no rated pair", (-1.0, 1.0)),
        }
    return {"models": models} | ({} if own is None else {"own": models[own]["favour"]})
