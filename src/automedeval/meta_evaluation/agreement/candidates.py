"""Compare candidates by a judge or by people: mean scores, win rates and Bradley–Terry strengths (paper Fig. 4)."""

from itertools import combinations
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.stats import bootstrap, bradley_terry

MOST_MODELS = 40  # a table of more pairs cannot be read


def compare_candidates(
    cases: Cases,
    relation: np.ndarray,
    scores: np.ndarray | None = None,
    expected: np.ndarray | None = None,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare the candidates by relations [pairs] and, where they are given, scores [responses].

    Returns:
        {"models": {model: {"score", "expected", "win_rate"}}, "pairs": [{"pair", "win", "tie", "loss", "margin"}],
        "strengths", "first_places"} with statistics as leaves, or {"gap": the reason why nothing can be compared}.
        "first_places" has the share of the resamples in which each model has the highest strength, or, where there are no
        strengths, the highest win rate; models that are level share the place.
    """
    panel, models, model_of = cases.panel, cases.models, cases.model_of
    if len(models) > MOST_MODELS:
        count = f"{len(models)} model names in {len(cases)} cases"
        return {"gap": f"{count}: more than {MOST_MODELS}, or the names are not models"}
    first, second = panel.pairs
    wins, ties = bradley_terry.count_wins(
        model_of[first], model_of[second], relation, panel.case[first], len(cases), len(models)
    )
    played = (wins + wins.transpose(0, 2, 1) + ties).sum(0)
    present = np.flatnonzero(played.any(axis=0))
    if len(present) < 2:
        return {"gap": "no two models were compared"}
    names = [models[number] for number in present]
    if gap := bradley_terry.unconnected(played[np.ix_(present, present)], names):
        return {"gap": gap}
    wins, ties = wins[:, present][:, :, present], ties[:, present][:, :, present]
    halves = wins + ties / 2
    records: dict[str, dict] = {}
    for i, model in enumerate(names):
        records[model] = {}
        for label, values in (("score", scores), ("expected", expected)):
            if values is not None:
                use = (model_of == present[i]) & ~np.isnan(values)
                total = panel.per_case(np.where(use, values, 0.0), "responses")
                records[model][label] = bootstrap.mean(total, panel.per_case(use, "responses"), int(use.sum()))
        against = (halves + halves.transpose(0, 2, 1))[:, i].sum(-1)
        records[model]["win_rate"] = bootstrap.ratio(halves[:, i].sum(-1), against)
    pairs = []
    for i, j in combinations(range(len(names)), 2):
        played_by = wins[:, i, j] + wins[:, j, i] + ties[:, i, j]
        if played_by.any():
            outcomes = {"win": wins[:, i, j], "tie": ties[:, i, j], "loss": wins[:, j, i]}
            shares = {label: bootstrap.ratio(values, played_by) for label, values in outcomes.items()}
            shares["margin"] = bootstrap.mean(
                wins[:, i, j] - wins[:, j, i], played_by, int(played_by.sum()), bounds=(-1.0, 1.0)
            )
            pairs.append({"pair": [names[i], names[j]], **shares})
    return {"models": records, "pairs": pairs, **_strengths(halves, names, resamples, seed)}


def _strengths(halves: np.ndarray, names: list[str], resamples: int, seed: int) -> dict[str, Any]:
    """Return Bradley–Terry strengths with intervals over cases and the first places, or why there are none."""
    total = halves.sum(0)
    columns = halves.reshape(len(halves), -1)
    cases = int(halves.any(axis=(1, 2)).sum())
    parts = [
        (counts @ columns).reshape(len(counts), *total.shape)
        for counts in bootstrap.resample_counts(len(halves), resamples, seed)
    ]
    rates = np.concatenate(
        [bootstrap.divide(each.sum(axis=2), (each + each.transpose(0, 2, 1)).sum(axis=2)) for each in parts]
    )
    if reason := bradley_terry.unbeaten(total, names):
        return {"strengths": None, "reason": reason, "first_places": _first_places(rates, names)}
    draws = np.concatenate([bradley_terry.bradley_terry(each) for each in parts])
    strengths = bradley_terry.bradley_terry(total)
    games = (total + total.T).sum(axis=1).astype(int).tolist()
    records = {
        name: bootstrap.estimate_from(float(strengths[i]), draws[:, i], cases, games[i]) for i, name in enumerate(names)
    }
    # Where a model lost no comparison of a resample its strength is not finite: the win rates decide who is first.
    by_strength = np.where(np.isnan(draws).any(axis=1, keepdims=True), rates, draws)
    return {"strengths": records, "first_places": _first_places(by_strength, names)}


def _first_places(draws: np.ndarray, names: list[str]) -> dict[str, float]:
    """Return how often each model is highest among draws [resamples, models]; models that are level share the place."""
    defined = draws[~np.isnan(draws).all(axis=1)]
    first = defined >= np.nanmax(defined, axis=1, keepdims=True) - bootstrap.ROUNDING
    return dict(zip(names, (first / first.sum(axis=1, keepdims=True)).mean(axis=0).tolist()))
