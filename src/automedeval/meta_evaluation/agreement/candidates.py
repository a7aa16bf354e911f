"""Compare candidates by a judge or by people: mean scores, win rates, and wins, ties and losses (paper Fig. 4)."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

import numpy as np
import scipy

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.stats import bootstrap
from automedeval.stats.bootstrap import Bounds, Tree
from automedeval.stats.power import cases_needed
from automedeval.stats.prediction_powered import prediction_powered

LEVEL = 0.05  # adjusted p-value below which the difference of two models is clear
MOST_MODELS = 40  # a table of more pairs cannot be read
MOST_TOPICS = 20


def compare_candidates(
    cases: Cases, relation: np.ndarray, scores: np.ndarray | None = None
) -> Tree:
    """Compare the candidates by relations [pairs] and, where they are given, scores [responses].

    Returns:
        {"models": {model: {"score", "win_rate"}}, "pairs": [{"pair", "win", "tie", "loss", "margin"}]} with
        statistics as leaves, or {"gap": the reason why nothing can be compared}.
    """
    models = cases.models
    if len(models) > MOST_MODELS:
        count = f"{len(models)} model names in {len(cases)} cases"
        return {"gap": f"{count}: more than {MOST_MODELS}, or the names are not models"}
    wins, ties = _count_wins(cases, relation)
    played = (wins + wins.transpose(0, 2, 1) + ties).sum(0)
    present = np.flatnonzero(played.any(axis=0))
    if len(present) < 2:
        return {"gap": "no two models were compared"}
    names = [models[number] for number in present]
    if gap := _unconnected(played[np.ix_(present, present)], names):
        return {"gap": gap}
    wins, ties = wins[:, present][:, :, present], ties[:, present][:, :, present]
    figures = {"win_rate": shares_won(cases, relation)}
    if scores is not None:
        figures = {"score": means_by_model(cases, scores)} | figures
    records = {
        name: {label: of[name] for label, of in figures.items() if name in of} for name in names
    }
    pairs = []
    for i, j in combinations(range(len(names)), 2):
        played_by = wins[:, i, j] + wins[:, j, i] + ties[:, i, j]
        if played_by.any():
            outcomes = {"win": wins[:, i, j], "tie": ties[:, i, j], "loss": wins[:, j, i]}
            shares = {
                label: bootstrap.ratio(values, played_by) for label, values in outcomes.items()
            }
            shares["margin"] = bootstrap.mean(
                wins[:, i, j] - wins[:, j, i], played_by, int(played_by.sum()), bounds=(-1.0, 1.0)
            )
            pairs.append({"pair": [names[i], names[j]], **shares})
    return {"models": records, "pairs": pairs}


def means_by_model(
    cases: Cases, values: np.ndarray, places: np.ndarray | None = None, bounds: Bounds = None
) -> dict[str, bootstrap.Statistic | bootstrap.Estimate]:
    """Return the mean of the values of each model that has some; `places` has the response of each value, by default its own.

    Of more than `MOST_MODELS` models the means have no intervals, which would take much memory.
    """
    places = np.arange(cases.responses) if places is None else places
    models, case = cases.model_of[places], cases.panel.case[places]
    models, case, values = (each[~np.isnan(values)] for each in (models, case, values))
    counts, sums = np.bincount(models), np.bincount(models, values)
    there = {cases.models[number]: number for number in np.flatnonzero(counts).tolist()}
    if len(cases.models) > MOST_MODELS:
        return {
            name: bootstrap.Estimate(float(sums[k] / counts[k]), n=int(counts[k]))
            for name, k in there.items()
        }
    of = {name: models == number for name, number in there.items()}
    return {
        name: bootstrap.mean_of(values[at], case[at], len(cases), bounds=bounds)
        for name, at in of.items()
    }


def shared_means(cases: Cases, values: np.ndarray) -> Tree:
    """Return the means of models with values [responses] of different cases, in the cases that have a value of every one.

    Returns:
        The number of these "cases", of how many "of", and the "means" by model; empty where all models have the same cases.
    """
    scored, case = ~np.isnan(values), cases.panel.case
    models = len(np.unique(cases.model_of[scored]))
    count = np.bincount(case[scored], minlength=len(cases))
    is_shared = count == models
    if len(cases.models) > MOST_MODELS or (is_shared == (count > 0)).all():
        return {}
    means = means_by_model(cases, np.where(is_shared[case], values, np.nan))
    return {"cases": int(is_shared.sum()), "of": int((count > 0).sum()), "means": means}


def shares_won(cases: Cases, relation: np.ndarray) -> Tree:
    """Return the share of its pairs that each model wins by relations [pairs], a tie counting half."""
    halves = np.concatenate([1 + relation, 1 - relation]) / 2
    return means_by_model(cases, halves, np.concatenate(cases.panel.pairs), (0.0, 1.0))


def _count_wins(cases: Cases, relation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (wins, ties), each float [cases, models, models]: how often i beat j, and how often i and j tied."""
    wins, ties = np.zeros((2, len(cases), len(cases.models), len(cases.models)))
    first, second = cases.panel.pairs
    for left, right, won in ((first, second, 1), (second, first, -1)):
        at = (cases.panel.case[first], cases.model_of[left], cases.model_of[right])
        np.add.at(wins, at, (relation == won).astype(float))
        np.add.at(ties, at, (relation == 0).astype(float))
    return wins, ties


def _unconnected(compared: np.ndarray, models: list[str]) -> str | None:
    """Return why models cannot be ranked together, None if comparisons, float [models, models], connect them all."""
    parts, part = scipy.sparse.csgraph.connected_components(compared > 0, directed=False)
    if parts == 1:
        return None
    sizes = np.bincount(part)
    apart = [name for name, group in zip(models, part) if group != np.argmax(sizes)]
    shown = ", ".join(apart[:3]) + (f" and {len(apart) - 3} more" if len(apart) > 3 else "")
    return f"the {len(models)} models fall into {parts} groups that were never compared with each other ({shown} apart)"


def tell_apart(pairs: Sequence[Tree]) -> None:
    """Add to each pair the p-values of its margin, and "more_cases": about how many more would make an unclear one clear."""
    bootstrap.adjust(list(pairs), "margin")
    unclear = [pair for pair in pairs if not _is_clear(pair)]
    for pair in pairs:
        pair["more_cases"] = None
    for pair in unclear:  # Holm compares the clearest of them with this part of the level
        if needed := cases_needed(pair["margin"], LEVEL / len(unclear)):
            pair["more_cases"] = max(1, needed - pair["margin"].cases)


def _is_clear(pair: Tree) -> bool:
    return pair["p_adjusted"] is not None and pair["p_adjusted"] < LEVEL


def standing(table: Tree) -> Tree:
    """Return how the models of one judge's table stand.

    Returns:
        "order": the models by their mean share of pairs won, equal ones by name, none before one that it is clearly worse than;
        "equal": those with the share of the first, and it; "level": those that the first is not shown to be better than, by an
        adjusted p-value below `LEVEL`; "signs": (model, model) → ">" better,
        "<" worse, "≈" no clear difference, "" not compared; "wins": (model, model) → the share of their cases that the first
        wins, ties counted half; "ranks": model → the ranks that clear differences leave it, as "1" or "1–2"; "unclear": the
        first model, the one that is hardest to tell from it, and about how many more cases would (None: no number), else None.
    """
    models = table.get("models", {})  # none where nothing can be compared
    signs, wins, more = {}, {}, {}
    for pair in table.get("pairs", ()):
        clear_signs = "><" if pair["margin"]["value"] > 0 else "<>"
        ways = (pair["pair"], "win"), (pair["pair"][::-1], "loss")
        for (names, won), sign in zip(ways, clear_signs if _is_clear(pair) else "≈≈"):
            signs[tuple(names)] = sign
            wins[tuple(names)] = pair[won]["value"] + pair["tie"]["value"] / 2
            more[tuple(names)] = pair["more_cases"]
    losses, beaten = (
        Counter(model for (model, _), sign in signs.items() if sign == which) for which in "<>"
    )
    shares = {
        model: round(fmean(share for (name, _), share in wins.items() if name == model), 9)
        for model in models
    }
    order, rest = [], sorted(models, key=lambda model: (-shares[model], model))
    while rest:
        free = (
            model for model in rest if not any(signs.get((other, model)) == ">" for other in rest)
        )
        order.append(next(free, rest[0]))
        rest.remove(order[-1])
    level = [model for model in order[1:] if signs.get((order[0], model), "") != ">"]
    ends = {model: (1 + losses[model], len(order) - beaten[model]) for model in order}
    unclear = [
        (order[0], model, more[order[0], model])
        for model in level
        if signs.get((order[0], model)) == "≈"
    ]
    ranks = {model: "–".join(dict.fromkeys(map(str, ends[model]))) for model in order}
    hardest = max(unclear, key=lambda each: math.inf if each[2] is None else each[2], default=None)
    equal = [*order[:1], *(model for model in level if shares[model] == shares[order[0]])]
    stands = {"order": order, "equal": equal, "level": level, "signs": signs, "wins": wins}
    return stands | {"ranks": ranks, "unclear": hardest}


def ranked(cases: Cases, relation: np.ndarray) -> Tree:
    """Return how the models stand by relations [pairs], see `standing`."""
    table = bootstrap.estimate(compare_candidates(cases, relation), cases.clusters)
    tell_apart(table.get("pairs", []))
    return standing(bootstrap.plain(table))


def means_by_topic(
    cases: Cases, values: np.ndarray | None, scale: tuple[float, float] | None
) -> list[Tree]:
    """Return the mean score of each model in each topic, of scores [responses].

    Returns:
        [{"topic", "cases", "models": {model: estimate}}] of two scored cases or more, at most `MOST_TOPICS`, most first; empty
        where there are no scores, the names are no models, or all cases have one topic or none.
    """
    if values is None or len(cases.models) > MOST_MODELS:
        return []
    topics = np.array([case.topic or "" for case in cases.records])
    scored = np.unique(cases.panel.case[~np.isnan(values)])
    counts, records = Counter(topic for topic in topics[scored].tolist() if topic), []
    for topic, count in counts.most_common(MOST_TOPICS if len(counts) > 1 else 0):
        if count > 1:
            within, means = (topics == topic)[cases.panel.case], {}
            for number, name in enumerate(cases.models):
                scores = values[within & (cases.model_of == number)]
                means[name] = prediction_powered(
                    np.full(len(scores), np.nan), scores, scale
                ).naive.to_dict()
            records.append({"topic": topic, "cases": count, "models": means})
    return records
