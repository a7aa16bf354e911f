"""What changed from one version of a model to the next, answer by answer: for the grid and the first screen."""

from collections.abc import Mapping

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.page import Scale
from automedeval.meta_evaluation.report.grid import CHANGES, NEWLY, Changed, numbers_of
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People, scale_of
from automedeval.meta_evaluation.verdicts.table import Row
from automedeval.records import Case, JsonObject, RecordError, question_text
from automedeval.records.text import in_a_row
from automedeval.stats.agreement import in_steps
from automedeval.stats.bootstrap import Estimate, adjust_p, exact_test, how_many, is_known
from automedeval.stats.prediction_powered import mean_over_cases

DROP = 2.0  # points by which a score falls that is read first; half of a shorter scale
FIRST_WORDS = 60  # letters of a question that stand for its id


def in_common(cases: Cases, first: str, second: str, option: str) -> ndarray:
    """Return the responses of two models in the cases that both answered, int [2, cases]; `option` is what named them.

    Raises:
        RecordError: no model has one of these names.
    """
    responses = []
    for model in (first, second):
        if model not in cases.models:
            names = in_a_row(cases.models)
            raise RecordError(f"{option}: {cases.source} has no model {model!r}; it has {names}")
        responses.append(np.flatnonzero(cases.model_of == cases.models.index(model)))
    ours, theirs = (cases.panel.case[of_model] for of_model in responses)
    _, *places = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    return np.array([of_model[at] for of_model, at in zip(responses, places)])


def better(row: Row, first: ndarray, second: ndarray) -> ndarray:
    """Return which response wins each pair by a judge, from -1 (the second) to 1 (the first): float [pairs of indices]."""
    pairs = np.sort([first, second], axis=0).T.tolist()
    places = [row.judge.cases.pair_index[one, other] for one, other in pairs]
    return np.where(first < second, 1.0, -1.0) * row.wins[places]


def p_value(mean: Estimate, relation: ndarray, clusters: ndarray) -> float | None:
    """Return the two-sided p-value of the mean of gaps by Student's t-test over clusters; None without a gap.

    Where all clusters are equal, or there is no mean, it is that of which cases are better and
    worse, see `exact_test`.
    """
    if mean.reason is None:
        return mean.p
    return exact_test(np.nan_to_num(relation), clusters) if mean.n else None


def drop_on(scale: Scale) -> float:
    """Return by how many points a score on this scale falls that is read first; none is without a scale."""
    return min(DROP, np.ptp(scale) / 2) if scale else np.inf


def worst_rated(cases: Cases, people: People | None, row: Row, notes: list[str]) -> ndarray:
    """Return which responses somebody gave the lowest score of a judge's scale on a criterion: bool [responses].

    None without ratings, or of a criterion on another scale (see `scale_of`), which `notes` then say.
    """
    scale = row.judge.scale
    is_worst = np.zeros(cases.responses, bool)
    if people is None or scale is None:
        return is_worst
    for criterion, ratings in zip(people.criteria, people.ratings):
        if scale_of(ratings, scale) == scale:
            is_worst |= (ratings <= scale[0]).any(axis=1)
        else:
            notes.append(f"{criterion}: not surely on the judge's scale: no worst rating is named")
    return is_worst


def is_on_scale(row: Row, people: People) -> bool:
    """Return whether the ratings on every criterion are on the scale of a judge's scores, see `scale_of`."""
    scale = row.judge.scale
    return all(scale_of(ratings, scale) == scale for ratings in people.ratings)


def against_baseline(cases: Cases, row: Row, baseline: str) -> tuple[JsonObject, Changed]:
    """Compare every model with one of them, case by case, by one line.

    Returns:
        The record: the baseline, and of every other model in how many cases it is "better", "worse" and "equal", the "cases"
        in which it is worse, the worst first, how many scores "dropped" (see `drop_on`), how many of its answers have a mark
        of `NEWLY` that the baseline's lacks (of numbers that differ, one that does not differ there; without a score: in
        every valid verdict), the "means" of the baseline and of it in the cases that both have, and their "difference" (of
        choices none) with its "p" value, also adjusted for the number of models (Holm); "questions" has the first words of
        these cases. And the gap and the marks of all answers.

    Raises:
        RecordError: no model has this name.
    """
    gap = np.full(cases.responses, np.nan)
    marks = {name: np.zeros(cases.responses, bool) for name in CHANGES}
    judge = row.judge
    shown = judge.shown()
    # By any valid verdict, of a judge of pairs also on a pair without the baseline.
    is_scored = is_known(judge.per_response(judge.own) if row.best is None else row.best)
    numbers = numbers_of(judge)
    record: JsonObject = {"name": baseline, "models": {}, "questions": {}}
    for name in cases.models:
        if name == baseline:
            continue
        new, old = in_common(cases, name, baseline, "--baseline")
        gap[new] = _gaps(row, old, new)
        relation = judge.relation_of(gap[new].round(2), row.band)  # as it is shown
        # an empty answer loses a tie
        relation += (relation == 0) * (cases.empty[old] * 1.0 - cases.empty[new])
        marks["won"][new] = relation > 0
        marks["lost"][new] = relation < 0
        is_new = {
            "differs": (numbers[new] - numbers[old]).astype(bool),
            "empty": cases.empty[new] & ~cases.empty[old],
            "failing": (judge.asked & ~is_scored)[new] & is_scored[old],
        }
        for kind in NEWLY:
            marks[f"newly_{kind}"][new] = is_new[kind] & (shown[old] | shown[new])
        lost = new[relation < 0]
        worst_first = cases.panel.case[lost[np.argsort(gap[lost], kind="stable")]]
        worse = [cases.records[number] for number in worst_first]
        counts = {kind: how_many(of_all[new]) for kind, of_all in marks.items()}
        figures = _figures(cases, row, gap[new], old, new, counts, relation)
        record["models"][name] = {"cases": [case.id for case in worse], **figures}
        record["questions"] |= {case.id: _first_words(case) for case in worse}
    adjust_p(record["models"].values())
    return record, Changed(baseline, gap, marks)


def _gaps(row: Row, old: ndarray, new: ndarray) -> ndarray:
    """Return by how much new answers are better than the old ones, of a judge of pairs what it says of these two."""
    values = row.ranking_values
    gaps = better(row, new, old) if row.best is None else values[new] - values[old]
    return gaps * (in_steps(gaps, row.judge.step) != 0)


def _figures(
    cases: Cases,
    row: Row,
    gaps: ndarray,
    old: ndarray,
    new: ndarray,
    counts: Mapping[str, int],
    relation: ndarray,
) -> JsonObject:
    """Return the figures of one model beside the baseline, by its answers' gaps, marks and relations."""
    values = row.ranking_values
    scale = row.judge.scale
    better, worse, both = counts["won"], counts["lost"], is_known(gaps)
    clusters = cases.cluster_of[new]
    most = float(np.ptp(scale)) if scale else np.inf
    difference = mean_over_cases(gaps, clusters, (-most, most))  # no interval exceeds the scale
    if row.best is None:
        difference = Estimate(None, n=difference.n, reason="choices have no mean score")
    return {
        "better": better,
        "worse": worse,
        "equal": how_many(both) - better - worse,
        "dropped": how_many(gaps.round(2) <= -drop_on(scale)),
        "newly": {kind: counts[f"newly_{kind}"] for kind in NEWLY},
        "means": [float(values[at][both].mean()) if both.any() else None for at in (old, new)],
        "difference": difference.to_dict(),
        "p": p_value(difference, relation, clusters),
        "p_adjusted": 1.0,
    }


def _first_words(case: Case) -> str:
    question = " ".join(question_text(case.question).split())
    more = "…" if len(question) > FIRST_WORDS else ""
    return f"“{question[:FIRST_WORDS]}{more}”"
