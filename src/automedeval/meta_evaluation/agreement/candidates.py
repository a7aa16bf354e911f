"""Compare candidates by a judge or by people: mean scores, win rates, and wins, ties and losses (paper Fig. 4)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import scipy
from numpy import ndarray

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.records import JsonObject
from automedeval.stats.bootstrap import (
    SHARE,
    Bounds,
    Estimate,
    Statistic,
    Statistics,
    adjust_p,
    estimate,
    exact_test,
    how_many,
    is_known,
    mean_of,
    only,
    plain,
)
from automedeval.stats.power import cases_needed
from automedeval.stats.prediction_powered import mean_over_cases

SIGNIFICANT = 0.05  # p-value below which a difference is clear
SIGNS = (1, 0, -1)  # of the relations: won, tied, lost
MOST_MODELS = 40  # a table of more pairs cannot be read
MOST_TOPICS = 20
Means = dict[str, Statistic | Estimate]  # by model
Two = tuple[str, str]  # a model, and one that is clearly worse


def compare_candidates(
    cases: Cases, relation: ndarray, scores: ndarray | None = None
) -> JsonObject:
    """Compare the candidates by relations [pairs] and, where they are given, scores [responses].

    Returns:
        {"models": {model: {"score", "win_rate"}}, "pairs": [{"pair", "win", "tie", "loss", "margin",
        "p"}]} with statistics as leaves, "p" by `exact_test`, or {"gap": the reason why nothing can be compared}.
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
    if not judged.any():
        return {"gap": "no two models were compared"}
    first, second = cases.model_of[np.stack(cases.panel.pairs)]
    of_lower = np.where(first < second, relation, -relation)
    kinds = np.unique(cases.kind_of_pair[judged])
    compared = np.stack(np.divmod(kinds, len(models)))
    if gap := _unconnected(compared, models):
        return {"gap": gap}
    means = {} if scores is None else means_by_model(cases, scores)
    records: JsonObject = {}
    for name, win_rate in shares_won(cases, relation).items():
        score = {"score": means[name]} if name in means else {}
        records[name] = score | {"win_rate": win_rate}
    pairs = []
    for kind, (low, high) in zip(kinds, compared.T.tolist()):
        at = judged & (cases.kind_of_pair == kind)
        shares = outcome_shares(of_lower[at], cases.panel.case_of_pair[at], len(cases))
        p = exact_test(of_lower[at], cases.clusters[cases.panel.case_of_pair[at]])
        pairs.append({"pair": [models[low], models[high]], **shares, "p": p})
    return {"models": records, "pairs": pairs}


def outcome_shares(
    relation: ndarray, case: ndarray, cases: int, names: Sequence[str] = ("win", "tie", "loss")
) -> Statistics:
    """Return by name the shares of the relations 1, 0 and -1, and the "margin", the first less the last."""
    shares = {
        name: mean_of(relation == sign, case, cases, "no pair", SHARE)
        for name, sign in zip(names, SIGNS)
    }
    return shares | {"margin": mean_of(relation, case, cases, bounds=(-1.0, 1.0))}


def means_by_model(
    cases: Cases, values: ndarray, places: ndarray | None = None, bounds: Bounds = None
) -> Means:
    """Return the mean of the values of each model that has some; `places` has the response of each value, by default its own.

    Of more than `MOST_MODELS` models the means have no intervals, which would take much memory.
    """
    places = np.arange(cases.responses) if places is None else places
    there = is_known(values)
    places = places[there]
    values = values[there]
    models = cases.model_of[places]
    case = cases.panel.case[places]
    means: Means = {}
    for number in np.unique(models).tolist():
        at = models == number
        name = cases.models[number]
        if len(cases.models) > MOST_MODELS:
            means[name] = Estimate(float(values[at].mean()), n=how_many(at))
        else:
            means[name] = mean_of(values[at], case[at], len(cases), bounds=bounds)
    return means


def shared_means(cases: Cases, values: ndarray, rated: ndarray | None = None) -> JsonObject:
    """Return the means of models by a judge's values [responses] in the cases that have one of every model.

    Returns:
        The number of these "cases", of how many "of", the "means" by model, and those of "people" by their scores [responses],
        in the ones in which they rated every model; where there are no such cases, in all with a value.
    """
    is_shared = _shared_cases(cases, values)
    there = is_known(values)
    if is_shared.any():
        there = is_shared[cases.panel.case]
    record: JsonObject = {
        "cases": how_many(is_shared),
        "of": len(cases),
        "means": means_by_model(cases, only(values, there)),
    }
    if rated is not None:
        record["people"] = shared_means(cases, only(rated, there))["means"]
    return record


def _shared_cases(cases: Cases, values: ndarray) -> ndarray:
    """Return whether all models that have a value anywhere have one in each case: bool [cases]."""
    scored = is_known(values)
    count = np.bincount(cases.panel.case[scored], minlength=len(cases))
    return count == max(1, len(np.unique(cases.model_of[scored])))


def shares_won(cases: Cases, relation: ndarray) -> Means:
    """Return the share of pairs that each model wins by relations [pairs], a tie counting half."""
    halves = np.concatenate([1 + relation, 1 - relation]) / 2
    return means_by_model(cases, halves, np.concatenate(cases.panel.pairs), SHARE)


def _unconnected(compared: ndarray, models: list[str]) -> str | None:
    """Return why models cannot be ranked together, None if comparisons connect them all; int [2, pairs of models]."""
    there = np.unique(compared)
    graph = scipy.sparse.coo_array((np.ones(len(compared.T)), compared), (len(models),) * 2)
    part = scipy.sparse.csgraph.connected_components(graph, directed=False)[1][there]
    apart = [models[number] for number in there[part != np.bincount(part).argmax()]]
    if not apart:
        return None
    return f"not all were ever compared with each other ({first_three(apart)} apart)"


def first_three(names: Sequence[str]) -> str:
    """Return the first three of several names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def with_tests(table: JsonObject) -> JsonObject:
    """Return an estimated table of `compare_candidates` with the p-values adjusted for their number.

    Each pair has "more_cases" too: about how many more would make an unclear one clear, None where there is no number.
    """
    if "gap" in table:
        return table
    pairs = [pair | {"more_cases": None} for pair in table["pairs"]]
    adjust_p(pairs)
    unclear = [pair for pair in pairs if not _is_clear(pair)]
    for pair in unclear:  # Holm compares the clearest of them with this part of the level
        margin = pair["margin"]
        if needed := cases_needed(margin, SIGNIFICANT / len(unclear)):
            more = max(1, needed - margin.cases)  # cases, or clusters as large as these
            pair["more_cases"] = math.ceil(more * margin.n / margin.cases)
    return table | {"pairs": pairs}


def _is_clear(pair: JsonObject) -> bool:
    return pair["p_adjusted"] < SIGNIFICANT


def standing(table: JsonObject) -> JsonObject:
    """Return how the models of one judge's table stand.

    Returns:
        "order": the models by their mean share of pairs won, equal ones by name, none before one that it is clearly worse than;
        "tied": those with the share of the first, and it; "rivals": those that the first is not shown to be better than, by an
        adjusted p-value below `SIGNIFICANT`; "ranks": model → the ranks that clear differences leave it, as "1" or "1–2";
        "unclear": the first model, the one that is hardest to tell from it, and about how many more cases would (None: no
        number), else None.
    """
    pairs = table.get("pairs", [])  # none where nothing can be compared
    won: dict[str, list[float]] = {model: [] for model in table.get("models", {})}
    clear = set[Two]()
    for pair in pairs:
        first, second = pair["pair"]
        half = pair["tie"]["value"] / 2
        won[first].append(pair["win"]["value"] + half)
        won[second].append(pair["loss"]["value"] + half)
        if _is_clear(pair):
            clear.add((first, second) if pair["margin"]["value"] > 0 else (second, first))
    shares = {model: round(fmean(of_pairs), 9) for model, of_pairs in won.items()}
    order = _in_order(shares, clear)
    rivals = [model for model in order[1:] if (order[0], model) not in clear]
    return {
        "order": order,
        "tied": order[:1] + [model for model in rivals if shares[model] == shares[order[0]]],
        "rivals": rivals,
        "ranks": _ranks(order, clear),
        "unclear": _hardest(order, pairs),
    }


def _in_order(shares: Mapping[str, float], clear: set[Two]) -> list[str]:
    """Return the models by their shares, equal ones by name, none before one that it is clearly worse than."""
    rest = sorted(shares, key=lambda model: (-shares[model], model))
    order = []
    while rest:
        beaten = {worse for better, worse in clear if better in rest}
        free = [model for model in rest if model not in beaten]
        order.append((free or rest)[0])
        rest.remove(order[-1])
    return order


def _ranks(order: Sequence[str], clear: set[Two]) -> dict[str, str]:
    """Return the ranks that clear differences leave each model, as "1" or "1–2"."""
    losses = Counter(worse for _, worse in clear)
    beaten = Counter(better for better, _ in clear)
    ranks = {}
    for model in order:
        first = 1 + losses[model]
        last = len(order) - beaten[model]
        ranks[model] = f"{first}" if first == last else f"{first}–{last}"
    return ranks


def _hardest(
    order: Sequence[str], pairs: Sequence[JsonObject]
) -> tuple[str, str, int | None] | None:
    """Return the first model, the one that is hardest to tell from it, and how many more cases would."""
    more: dict[str, int | None] = {}
    for pair in pairs:
        if order[0] in pair["pair"] and not _is_clear(pair):
            more |= dict.fromkeys(pair["pair"], pair["more_cases"])
    unclear = [model for model in order[1:] if model in more]
    if not unclear:
        return None
    hardest = max(unclear, key=lambda model: more[model] or math.inf)
    return order[0], hardest, more[hardest]


def ranked(cases: Cases, relation: ndarray) -> JsonObject:
    """Return how the models stand by relations [pairs], see `standing`."""
    table = estimate(compare_candidates(cases, relation), cases.clusters)
    return standing(plain(with_tests(table)))


def means_by_topic(cases: Cases, values: ndarray | None, scale: Bounds) -> list[JsonObject]:
    """Return the mean score of each model in each topic, of scores [responses], in the cases with a score of every model.

    Returns:
        [{"topic", "cases", "models": {model: estimate}}] of two such cases or more, at most `MOST_TOPICS`, most first; empty
        where there are no scores, the names are no models, or all cases have one topic or none.
    """
    if values is None or len(cases.models) > MOST_MODELS:
        return []
    topics = np.array([case.topic or "" for case in cases.records])
    is_shared = _shared_cases(cases, values)
    counts = Counter(topic for topic in topics[is_shared].tolist() if topic)
    if len(counts) < 2:
        return []
    records = []
    for topic, count in counts.most_common(MOST_TOPICS):
        in_topic = is_shared & (topics == topic)
        means = {
            name: mean_over_cases(values[at], cases.cluster_of[at], scale).to_dict()
            for name, at in cases.by_model(in_topic[cases.panel.case])
        }
        if count > 1:
            records.append({"topic": topic, "cases": count, "models": means})
    return records
