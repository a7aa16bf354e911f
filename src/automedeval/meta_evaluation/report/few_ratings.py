"""Compare models by few ratings: the ratings of some cases correct the verdicts on all (see `stats.prediction_powered`)."""

from dataclasses import replace

import numpy as np

from automedeval.meta_evaluation.agreement.candidates import MOST_MODELS
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.report.changes import better, candidates_of, in_common, is_on_scale
from automedeval.meta_evaluation.table import Row
from automedeval.records import JsonObject
from automedeval.stats.agreement import relation_of
from automedeval.stats.bootstrap import Estimate
from automedeval.stats.prediction_powered import Powered, prediction_powered


def by_few_ratings(cases: Cases, people: People, row: Row, baseline: str) -> JsonObject:
    """Return model → its figures by people's ratings alone, by one judge alone, and by both, each as `Powered`.

    The figures are the "mean" score, the "difference" to the baseline (the model less the baseline) and the share of cases won
    from it, "win_rate", with ties as one half. A judge of pairs has no means; a model with fewer than two cases in common with
    the baseline, and the baseline itself, have a mean alone. Empty where the names of the candidates are no models.
    """
    if len(cases.models) > MOST_MODELS:
        return {}
    responses = candidates_of(cases, [baseline, *cases.models], "--baseline")
    on_scale = is_on_scale(row, people)
    models: JsonObject = {}
    for name, places in responses.items():
        figures = models[name] = dict[str, Powered]()
        if row.best is not None:
            at = places[places >= 0]
            figures["mean"] = _figure(people.scores[at], row.best[at], on_scale)
        sides = in_common(responses, name, baseline)
        if name == baseline or sides.shape[1] < 2:
            continue
        relation, gaps = better(row, cases, *sides), people.gaps(*sides)
        judged = relation if row.best is None else np.subtract(*row.best[sides])
        figures["difference"] = _figure(gaps, judged, on_scale)
        won = (1 + relation_of(gaps)) / 2
        figures["win_rate"] = prediction_powered(won, (1 + relation) / 2, (0.0, 1.0))
    return models


def _figure(people: np.ndarray, judge: np.ndarray, on_scale: bool) -> Powered:
    """Return the estimates of a mean; none by the judge alone where it is not on people's scale."""
    powered = prediction_powered(people, judge)
    gap = Estimate(None, reason="this judge's figures are not on people's scale")
    return powered if on_scale else replace(powered, naive=gap)
