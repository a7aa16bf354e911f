"""Compare candidates by a judge or by people: mean scores, win rates, and wins, ties and losses (paper Fig. 4)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import scipy
from numpy import ndarray

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.records import JsonObject
from automedeval.stats.bootstrap import (
    SHARE,
    Bounds,
    Estimate,
    Statistic,
    adjust,
    estimate,
    is_known,
    mean_of,
    only,
    plain,
)
from automedeval.stats.power import cases_needed
from automedeval.stats.prediction_powered import mean_over_cases

LEVEL = 0.05  # adjusted p-value below which the difference of two models is clear
MOST_MODELS = 40  # a table of more pairs cannot be read
MOST_TOPICS = 20
TURNED = {">": "<", "<": ">", "≈": "≈"}  # sign of two models → that of the second beside the first
Two = tuple[str, str]


def compare_candidates(
    cases: Cases, relation: ndarray, scores: ndarray | None = None
) -> JsonObject:
    """Compare the candidates by relations [pairs] and, where they are given, scores [responses].

    Returns:
        {"models": {model: {"score", "win_rate"}}, "pairs": [{"pair", "win", "tie", "loss", "margin"}]} with
        statistics as leaves, or {"gap": the reason why nothing can be compared}.
    """
    models = cases.models
    if len(models) > MOST_MODELS:
        return {
            "gap": (
                f"{len(models)} model names in {len(cases)} cases: more than {MOST_MODELS}, or the "
                "names are not models"
            )
        }
    judged = is_known(relation)
    sides = np.stack(cases.panel.pairs)[:, judged]
    case, (first, second) = cases.panel.case[sides[0]], cases.model_of[sides]
    of_lower = np.where(first < second, 1, -1) * relation[judged]
    low, high = np.minimum(first, second), np.maximum(first, second)
    compared = np.zeros((len(models), len(models)))
    compared[low, high] = 1
    present = np.flatnonzero(compared.any(axis=0) | compared.any(axis=1))
    if not len(present):
        return {"gap": "no two models were compared"}
    names = [models[number] for number in present]
    if gap := _unconnected(compared[np.ix_(present, present)], names):
        return {"gap": gap}
    win_rates = shares_won(cases, relation)
    means = {} if scores is None else means_by_model(cases, scores)
    records: JsonObject = {}
    for name in names:
        score = {"score": means[name]} if name in means else {}
        records[name] = score | {"win_rate": win_rates[name]}
    pairs = []
    for i, j in np.argwhere(compared).tolist():
        at = (low == i) & (high == j)
        outcomes = _outcomes(of_lower[at], case[at], len(cases))
        pairs.append({"pair": [models[i], models[j]], **outcomes})
    return {"models": records, "pairs": pairs}


def _outcomes(relation: ndarray, case: ndarray, cases: int) -> dict[str, Statistic]:
    """Return the shares of wins, ties and losses by the relations of two models, and the wins less the losses."""
    return {
        "win": mean_of(relation == 1, case, cases, "no pair", SHARE),
        "tie": mean_of(relation == 0, case, cases, "no pair", SHARE),
        "loss": mean_of(relation == -1, case, cases, "no pair", SHARE),
        "margin": mean_of(relation, case, cases, bounds=(-1.0, 1.0)),
    }


def means_by_model(
    cases: Cases, values: ndarray, places: ndarray | None = None, bounds: Bounds = None
) -> dict[str, Statistic | Estimate]:
    """Return the mean of the values of each model that has some; `places` has the response of each value, by default its own.

    Of more than `MOST_MODELS` models the means have no intervals, which would take much memory.
    """
    places = np.arange(cases.responses) if places is None else places
    there = is_known(values)
    places, values = places[there], values[there]
    models, case = cases.model_of[places], cases.panel.case[places]
    means: dict[str, Statistic | Estimate] = {}
    if len(cases.models) > MOST_MODELS:
        counts, sums = np.bincount(models), np.bincount(models, values)
        for number in np.flatnonzero(counts).tolist():
            mean = float(sums[number] / counts[number])
            means[cases.models[number]] = Estimate(mean, n=int(counts[number]))
        return means
    for number in np.unique(models).tolist():
        at = models == number
        means[cases.models[number]] = mean_of(values[at], case[at], len(cases), bounds=bounds)
    return means


def shared_means(cases: Cases, values: ndarray) -> JsonObject:
    """Return the means of models with values [responses] of different cases, in the cases that have a value of every one.

    Returns:
        The number of these "cases", of how many "of", and the "means" by model; empty where all models have the same cases.
    """
    scored, case = is_known(values), cases.panel.case
    models = len(np.unique(cases.model_of[scored]))
    count = np.bincount(case[scored], minlength=len(cases))
    is_shared = count == models
    if len(cases.models) > MOST_MODELS or (is_shared == (count > 0)).all():
        return {}
    means = means_by_model(cases, only(values, is_shared[case]))
    return {"cases": int(is_shared.sum()), "of": int((count > 0).sum()), "means": means}


def shares_won(cases: Cases, relation: ndarray) -> dict[str, Statistic | Estimate]:
    """Return the share of its pairs that each model wins by relations [pairs], a tie counting half."""
    halves = np.concatenate([1 + relation, 1 - relation]) / 2
    return means_by_model(cases, halves, np.concatenate(cases.panel.pairs), SHARE)


def _unconnected(compared: ndarray, models: list[str]) -> str | None:
    """Return why models cannot be ranked together, None if comparisons, float [models, models], connect them all."""
    parts, part = scipy.sparse.csgraph.connected_components(compared > 0, directed=False)
    if parts == 1:
        return None
    largest = np.argmax(np.bincount(part))
    apart = [name for name, group in zip(models, part) if group != largest]
    return (
        f"the {len(models)} models fall into {parts} groups that were never compared with each "
        f"other ({first_three(apart)} apart)"
    )


def first_three(names: Sequence[str]) -> str:
    """Return the first three of several names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def tell_apart(pairs: list[JsonObject]) -> None:
    """Add to each pair the p-values of its margin, and "more_cases": about how many more would make an unclear one clear."""
    adjust(pairs, "margin")
    unclear = [pair for pair in pairs if not _is_clear(pair)]
    for pair in pairs:
        pair["more_cases"] = None
    for pair in unclear:  # Holm compares the clearest of them with this part of the level
        if needed := cases_needed(pair["margin"], LEVEL / len(unclear)):
            pair["more_cases"] = max(1, needed - pair["margin"].cases)


def _is_clear(pair: JsonObject) -> bool:
    return pair["p_adjusted"] is not None and pair["p_adjusted"] < LEVEL


def standing(table: JsonObject) -> JsonObject:
    """Return how the models of one judge's table stand.

    Returns:
        "order": the models by their mean share of pairs won, equal ones by name, none before one that it is clearly worse than;
        "equal": those with the share of the first, and it; "level": those that the first is not shown to be better than, by an
        adjusted p-value below `LEVEL`; "signs": (model, model) → ">" better,
        "<" worse, "≈" no clear difference, "" not compared; "wins": (model, model) → the share of their cases that the first
        wins, ties counted half; "ranks": model → the ranks that clear differences leave it, as "1" or "1–2"; "unclear": the
        first model, the one that is hardest to tell from it, and about how many more cases would (None: no number), else None.
    """
    pairs = table.get("pairs", [])  # none where nothing can be compared
    signs: dict[Two, str] = {}
    wins: dict[Two, float] = {}
    for pair in pairs:
        first, second = pair["pair"]
        half = pair["tie"]["value"] / 2
        wins[first, second] = pair["win"]["value"] + half
        wins[second, first] = pair["loss"]["value"] + half
        is_better = pair["margin"]["value"] > 0
        sign = (">" if is_better else "<") if _is_clear(pair) else "≈"
        signs[first, second], signs[second, first] = sign, TURNED[sign]
    shares = {}
    for model in table.get("models", {}):
        shares[model] = round(fmean(share for (name, _), share in wins.items() if name == model), 9)
    order = _in_order(shares, signs)
    level = [model for model in order[1:] if signs.get((order[0], model), "") != ">"]
    equal = [model for model in level if shares[model] == shares[order[0]]]
    return {
        "order": order,
        "equal": order[:1] + equal,
        "level": level,
        "signs": signs,
        "wins": wins,
        "ranks": _ranks(order, signs),
        "unclear": _hardest(order, signs, pairs),
    }


def _in_order(shares: Mapping[str, float], signs: Mapping[Two, str]) -> list[str]:
    """Return the models by their shares, equal ones by name, none before one that it is clearly worse than."""
    rest = sorted(shares, key=lambda model: (-shares[model], model))
    order: list[str] = []
    while rest:
        worse = {two[1] for two, sign in signs.items() if sign == ">" and two[0] in rest}
        free = [model for model in rest if model not in worse]
        order.append((free or rest)[0])
        rest.remove(order[-1])
    return order


def _ranks(order: Sequence[str], signs: Mapping[Two, str]) -> dict[str, str]:
    """Return the ranks that clear differences leave each model, as "1" or "1–2"."""
    losses = Counter(model for (model, _), sign in signs.items() if sign == "<")
    beaten = Counter(model for (model, _), sign in signs.items() if sign == ">")
    ranks = {}
    for model in order:
        first, last = 1 + losses[model], len(order) - beaten[model]
        ranks[model] = f"{first}" if first == last else f"{first}–{last}"
    return ranks


def _hardest(
    order: Sequence[str], signs: Mapping[Two, str], pairs: Sequence[JsonObject]
) -> tuple[str, str, int | None] | None:
    """Return the first model, the one that is hardest to tell from it, and how many more cases would."""
    more = {frozenset(pair["pair"]): pair["more_cases"] for pair in pairs}
    unclear = []
    for model in order:
        if signs.get((order[0], model)) == "≈":
            unclear.append((order[0], model, more[frozenset((order[0], model))]))
    return max(unclear, key=lambda two: math.inf if two[2] is None else two[2], default=None)


def ranked(cases: Cases, relation: ndarray) -> JsonObject:
    """Return how the models stand by relations [pairs], see `standing`."""
    table = estimate(compare_candidates(cases, relation), cases.clusters)
    tell_apart(table.get("pairs", []))
    return standing(plain(table))


def means_by_topic(
    cases: Cases, values: ndarray | None, scale: tuple[float, float] | None
) -> list[JsonObject]:
    """Return the mean score of each model in each topic, of scores [responses].

    Returns:
        [{"topic", "cases", "models": {model: estimate}}] of two scored cases or more, at most `MOST_TOPICS`, most first; empty
        where there are no scores, the names are no models, or all cases have one topic or none.
    """
    if values is None or len(cases.models) > MOST_MODELS:
        return []
    topics = np.array([case.topic or "" for case in cases.records])
    scored = np.unique(cases.panel.case[is_known(values)])
    counts = Counter(topic for topic in topics[scored].tolist() if topic)
    if len(counts) < 2:
        return []
    records = []
    for topic, count in counts.most_common(MOST_TOPICS):
        if count < 2:
            break
        in_topic, means = (topics == topic)[cases.panel.case], {}
        for number, name in enumerate(cases.models):
            scores = values[in_topic & (cases.model_of == number)]
            means[name] = mean_over_cases(scores, bounds=scale).to_dict()
        records.append({"topic": topic, "cases": count, "models": means})
    return records
