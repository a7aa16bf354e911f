"""Compare models by few ratings: the ratings of some cases correct the verdicts on all (see `stats.prediction_powered`)."""

from operator import attrgetter

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.agreement.candidates import MOST_MODELS
from automedeval.meta_evaluation.report.changes import (
    better,
    in_common,
    is_on_scale,
)
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People
from automedeval.meta_evaluation.verdicts.table import Row
from automedeval.records import JsonObject
from automedeval.stats.agreement import relation_of
from automedeval.stats.bootstrap import SHARE, Estimate, adjust
from automedeval.stats.prediction_powered import prediction_powered


def by_few_ratings(cases: Cases, people: People, row: Row, baseline: str) -> JsonObject:
    """Return model → its figures by people's ratings alone, by one judge alone, and by both, see `prediction_powered`.

    The figures are the "mean" score, the "difference" to the baseline (the model less the baseline) and the share of cases won
    from it, "win_rate", with ties as one half, the judge's within `Row.band`. A judge of pairs has no means; a model with fewer
    than two cases in common with the baseline, and the baseline itself, have a mean alone. A difference has its "p" by both,
    also adjusted for the number of models. Empty where the names of the candidates are no models.
    """
    if len(cases.models) > MOST_MODELS:
        return {}
    on_scale = is_on_scale(row, people)
    models: JsonObject = {}
    differences = []
    for number, name in enumerate(cases.models):
        figures = models[name] = dict[str, JsonObject]()
        if row.best is not None:
            of_model = cases.model_of == number
            clusters = cases.cluster_of[of_model]
            best = row.best[of_model]
            figures["mean"] = _figure(people.scores[of_model], best, clusters, on_scale)
        sides = in_common(cases, name, baseline, "--baseline")
        if name == baseline or len(sides.T) < 2:
            continue
        relation = better(row, *sides)
        gaps = people.gaps(*sides)
        judged = relation if row.best is None else np.subtract(*row.best[sides])
        clusters = cases.cluster_of[sides[0]]
        figures["difference"] = _figure(gaps, judged, clusters, on_scale)
        differences.append(figures["difference"])
        won = (1 + relation_of(gaps)) / 2
        figures["win_rate"] = prediction_powered(won, (1 + relation) / 2, SHARE, clusters)
    adjust(differences, "prediction_powered", attrgetter("p"))
    return models


def _figure(people: ndarray, judge: ndarray, clusters: ndarray, on_scale: bool) -> JsonObject:
    """Return the estimates of a mean; none by the judge alone where it is not on people's scale."""
    powered = prediction_powered(people, judge, clusters=clusters)
    gap = Estimate(None, reason="this judge's figures are not on people's scale")
    return powered if on_scale else powered | {"naive": gap}
