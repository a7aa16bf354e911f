"""Compare models by few ratings: the ratings of some cases correct the verdicts on all (see `stats.prediction_powered`)."""

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.agreement.candidates import MOST_MODELS
from automedeval.meta_evaluation.report.changes import (
    better,
    in_common,
    is_on_scale,
    responses_of,
)
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People
from automedeval.meta_evaluation.verdicts.table import Row
from automedeval.records import JsonObject
from automedeval.stats.agreement import relation_of
from automedeval.stats.bootstrap import Estimate
from automedeval.stats.prediction_powered import prediction_powered


def by_few_ratings(cases: Cases, people: People, row: Row, baseline: str) -> JsonObject:
    """Return model → its figures by people's ratings alone, by one judge alone, and by both, see `prediction_powered`.

    The figures are the "mean" score, the "difference" to the baseline (the model less the baseline) and the share of cases won
    from it, "win_rate", with ties as one half. A judge of pairs has no means; a model with fewer than two cases in common with
    the baseline, and the baseline itself, have a mean alone. Empty where the names of the candidates are no models.
    """
    if len(cases.models) > MOST_MODELS:
        return {}
    of_baseline = responses_of(cases, baseline, "--baseline")
    on_scale = is_on_scale(row, people)
    models: JsonObject = {}
    for name in cases.models:
        places = responses_of(cases, name, "--baseline")
        figures = models[name] = dict[str, JsonObject]()
        if row.best is not None:
            at = places[places >= 0]
            figures["mean"] = _figure(people.scores[at], row.best[at], on_scale)
        sides = in_common(places, of_baseline)
        if name == baseline or len(sides[0]) < 2:
            continue
        relation, gaps = better(row, cases, *sides), people.gaps(*sides)
        judged = relation if row.best is None else np.subtract(*row.best[[*sides]])
        figures["difference"] = _figure(gaps, judged, on_scale)
        won = (1 + relation_of(gaps)) / 2
        figures["win_rate"] = prediction_powered(won, (1 + relation) / 2, (0.0, 1.0))
    return models


def _figure(people: ndarray, judge: ndarray, on_scale: bool) -> JsonObject:
    """Return the estimates of a mean; none by the judge alone where it is not on people's scale."""
    powered = prediction_powered(people, judge)
    gap = Estimate(None, reason="this judge's figures are not on people's scale")
    return powered if on_scale else powered | {"naive": gap}
