"""Measure a judge's biases from its verdicts on unchanged cases: order, length, repeats, attribution, self-preference.

Each check returns figures as statistics, for one bootstrap over cases, or {"reason"} where these verdicts do not allow it.
Checks that need changed cases are in `trials`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from automedeval.audit.trials import ALIKE, TEXTS
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts
from automedeval.metrics.lexical import longer_text
from automedeval.records import Verdict
from automedeval.rubrics.misattribution import Misattribution, misattributions
from automedeval.stats import agreement
from automedeval.stats.agreement import SAME
from automedeval.stats.bootstrap import Statistic, divide, mean, ratio, undefined
from automedeval.stats.length_control import MOST_MODELS, length_controlled

CHECKS = ("order", "length", "repeats", "attribution", "self_preference")
PAIRS = 3  # pairs of answers that a report shows of a failed figure


def audit_clean(
    judge: JudgeVerdicts, checks: Sequence[str], people: People | None = None, own: str | None = None
) -> dict[str, Any]:
    """Return the figures of some of `CHECKS`, of `repeats` only for several runs; `own` is the judge's own model."""
    measures = {
        "order": lambda: order(judge),
        "length": lambda: length(judge, people),
        "repeats": lambda: repeats(judge),
        "attribution": lambda: attribution(judge),
        "self_preference": lambda: self_preference(judge, people, own),
    }
    possible = [check for check in CHECKS if check in checks and (check != "repeats" or len(judge.runs) > 1)]
    return {check: measures[check]() for check in possible}


def concordance(judge: JudgeVerdicts, people: People) -> Statistic:
    """Return the concordance with people over the pairs that have a valid verdict."""
    judged, panel = judge.pair_relations, judge.cases.panel
    rated = np.where(np.isnan(judged), np.nan, panel.relations(people.scores))
    statistic = agreement.concordance(panel, rated, judged)
    return replace(statistic, reason="no pair that people put in an order has a valid verdict")


def order(judge: JudgeVerdicts) -> dict[str, Any]:
    """Measure the effect of the order in which responses are shown.

    Returns:
        "flips", "changes": of two orders of a pair, the share with opposite relations, and with different ones; both also from
        expected scores ("_expected"); "slots": by how many steps values in each slot lie above the mean of their verdict, and
        "slot_span", the largest less the smallest; "first_wins": the share of pairs in which the response shown first is
        preferred, a tie being a half.
    """
    if judge.valid and all(verdict.order == tuple(sorted(verdict.order)) for verdict in judge.valid):
        return {"reason": "every response was shown in the order of the file: slots and models cannot be separated"}
    if len(judge.valid) == 1:
        return {"reason": "there is one valid verdict: the effects of slots and of responses cannot be separated"}
    panel = judge.panel
    figures: dict[str, Any] = _slots(judge)
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
            figures[f"{label}{name}"] = ratio(*sums, reason="every pair was shown in one order only")
    relation = panel.relations(judge.finest)
    earlier = np.where(judge.slot[panel.pairs[0]] < judge.slot[panel.pairs[1]], 1, -1)
    credit = np.where(np.isnan(relation), 0.0, (relation * earlier + 1) / 2)
    figures["first_wins"] = ratio(panel.per_case(credit), panel.per_case(~np.isnan(relation)))
    return figures


def _slots(judge: JudgeVerdicts) -> dict[str, Any]:
    effects = judge.slot_effects(judge.finest / judge.unit)
    if not len(effects):
        return {"slots": [], "slot_span": undefined(judge.panel.cases, 0, "no case has two responses")}

    def span(sums: np.ndarray) -> np.ndarray:
        means = divide(sums[:, ::2], sums[:, 1::2])
        return means.max(axis=1) - means.min(axis=1)

    each = [mean(total, known, round(known.sum())) for total, known in effects]
    return {"slots": each, "slot_span": Statistic(np.concatenate(effects).T, span, round(effects[:, 1].sum()))}


def length(judge: JudgeVerdicts, people: People | None = None) -> dict[str, Any]:
    """Measure the effect of length in words, and under "people" the same in people's ratings: longer may be better."""
    cases = judge.cases
    words = longer_text(cases.records)
    figures = _length(cases, words, judge.per_response(judge.finest), judge.pair_relations)
    if judge.criteria:
        for name in ("spearman", "spearman_within_case"):
            figures.pop(name)  # shares of criteria won belong to a pair, and do not compare across pairs
    if people is not None:
        figures["people"] = _length(cases, words, people.scores, cases.panel.relations(people.scores))
        figures["people"].pop("win_rates", None)
    return figures


def _length(cases: Cases, words: np.ndarray, values: np.ndarray, relation: np.ndarray) -> dict[str, Any]:
    panel = cases.panel
    first, second = panel.pairs
    longer = panel.relations(words)
    correlations = agreement.correlations(panel, words, values)
    figures: dict[str, Any] = {name: correlations[name] for name in ("spearman", "spearman_within_case")}
    judged_longer = np.where(np.isnan(relation), np.nan, longer)
    figures["prefers_longer"] = agreement.concordance(panel, judged_longer, relation)
    case, models = panel.case[first], cases.model_of
    gaps = words[first] - words[second]
    return figures | length_controlled(models[first], models[second], gaps, relation, case, len(cases), cases.models)


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
        for first, second in combinations(slices, 2):
            apart = np.abs(judge.own[first] - judge.own[second])
            same[case] += (apart <= (SAME if judge.has_own else ALIKE * unit)).all()
            gap[case] += np.abs(judge.finest[first] - judge.finest[second]).max() / unit
            count[case] += 1
    reason = "no request was answered twice"
    return {"tied": ratio(same, count, reason=reason), "gap": mean(gap, count, int(count.sum()), reason)}


def attribution(judge: JudgeVerdicts) -> dict[str, Any]:
    """Return the share of rationales with sentences that `rubrics.misattribution` marks, and their mean number."""
    marked, marks, written = np.zeros((3, len(judge.cases)))
    for case, _, sentences in _rationales(judge):
        written[case] += 1
        marked[case] += bool(sentences)
        marks[case] += len(sentences)
    if not written.any():
        return {"reason": "no verdict holds a rationale"}
    return {"marked": ratio(marked, written), "marks": mean(marks, written, int(written.sum()))}


def _rationales(judge: JudgeVerdicts) -> Iterator[tuple[int, Verdict, list[Misattribution]]]:
    """Yield the number of the case, the verdict and its marked sentences, of the first valid verdict on the same texts."""
    seen: set[tuple] = set()
    for case, verdict in zip(judge.case_of.tolist(), judge.verdicts):
        # Of several orders of one case only the first valid verdict of every run counts: the others are about the same texts.
        texts = (case, frozenset(verdict.order), verdict.run)
        if texts in seen or not verdict.valid or not (verdict.rationale or "").strip():
            continue
        seen.add(texts)
        yield case, verdict, misattributions(judge.cases.records[case], verdict)


def failing(judge: JudgeVerdicts, decided: Mapping[str, Any], people: People | None = None) -> list[dict[str, Any]]:
    """Return texts that show a failed threshold of `thresholds.decide`, as `trials.failing` does; none of other measures.

    They are pairs of answers that another order turns round, or whose longer one (shorter, where that wins too often) is put
    first and people do not put first; and sentences that credit an answer with another's words.
    """
    cases, panel = judge.cases, judge.cases.panel
    check, _, what = decided["figure"].partition(".")
    if check == "attribution":
        texts = []
        for case, verdict, sentences in _rationales(judge):
            models = [cases.records[case].models[index] for index in verdict.order]
            texts += [
                _text(
                    cases,
                    case,
                    models[each.credited - 1],
                    f"credited with words of {models[each.said_by - 1]}",
                    each.sentence,
                )
                for each in sentences
            ]
        return texts[:TEXTS]
    words = longer_text(cases.records)
    if check == "order" and what.startswith(("flips", "changes")):
        values = judge.expected_score if what.endswith("_expected") else judge.own
        above, below, level = judge.tally(judge.panel.relations(values), (1, -1, 0))
        ties = level * (above + below) * what.startswith("changes")
        pairs, change = (
            np.unique(judge.pair_runs[1][above * below + ties > 0]),
            ("ahead in one order, not in another",) * 2,
        )
    elif check == "length" and what in ("longer_wins", "prefers_longer"):
        relation, longer = judge.pair_relations, panel.relations(words)
        wrong = (longer != 0) & (relation == longer * (1 if decided["measured"]["value"] > 0.5 else -1))
        if people is not None:
            wrong &= panel.relations(people.scores) != relation
        pairs, change = np.flatnonzero(wrong), ("put first", "put second")
    else:
        return []
    texts = []
    for pair in pairs[:PAIRS].tolist():
        sides = [int(side[pair]) for side in panel.pairs]
        if check == "length" and judge.pair_relations[pair] < 0:
            sides.reverse()
        for side, how in zip(sides, change, strict=True):
            case = int(panel.case[side])
            response = cases.records[case].responses[side - int(cases.start[case])]
            texts.append(_text(cases, case, response.model, f"{how} · {words[side]:.0f} words", response.text))
    return texts


def _text(cases: Cases, case: int, model: str, change: str, text: str) -> dict[str, Any]:
    return {"case_id": cases.records[case].id, "model": model, "change": change, "text": text}


def self_preference(judge: JudgeVerdicts, people: People | None, own: str | None = None) -> dict[str, Any]:
    """Return, by model, concordance and "favour" over the pairs with a response of the model; "own" is that of the judge's own.

    Both are over the pairs that people rated and that have a valid verdict. Favour is the share of pairs that a model wins by
    the judge less the share by people, ties being a half (-1 to 1).
    """
    cases = judge.cases
    if people is None:
        return {"reason": "without people's ratings it is not known which responses are better"}
    if len(cases.models) > MOST_MODELS:
        return {"reason": f"{len(cases.models)} model names: more than {MOST_MODELS}, or the names are not models"}
    panel = cases.panel
    rated, judged = panel.relations(people.scores), judge.pair_relations
    both = ~np.isnan(rated) & ~np.isnan(judged)
    sides = [cases.model_of[side] for side in panel.pairs]
    models = {}
    for model, name in enumerate(cases.models):
        here = (sides[0] == model) != (sides[1] == model)
        toward = np.where(sides[0] == model, 1, -1)
        excess = np.where(here & both, (np.nan_to_num(judged) - np.nan_to_num(rated)) * toward / 2, 0.0)
        compared = panel.per_case(here & both)
        models[name] = {
            "concordance": agreement.concordance(panel, np.where(here & both, rated, np.nan), judged),
            "favour": mean(panel.per_case(excess), compared, int(compared.sum()), "no rated pair", (-1.0, 1.0)),
        }
    return {"models": models} | ({} if own is None else {"own": models[own]["favour"]})
