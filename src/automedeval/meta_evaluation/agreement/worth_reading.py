"""Find the cases worth reading: where models differ, where a judge errs or is least sure, and what statements contradict."""

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import contradicted
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.table import Row
from automedeval.stats import selective

SURE = 0.5  # standard deviations of the scores: two that are farther apart are no close call
ROUNDING = 1e-12  # of means of ratings that are equal
MOST_CASES = 10  # of each list of cases to look at, but of those with contradicted statements


def measures_of_cases(cases: Cases, row: Row, people: People | None) -> dict[str, np.ndarray]:
    """Return what makes cases worth reading: measure → float [cases], the higher the more; NaN where it is not known.

    - contradicted: the number of responses with a statement that contradicts its evidence; only where statements were checked.
    - models_differ: the largest less the smallest score of a case; of a judge of pairs, pairs won less lost.
    - people_disagree: the pairs in another order than people's, weighted by the gap between people's scores.
    - least_sure: minus the mean gap between the expected scores of two responses.
    """
    panel = cases.panel
    values = row.ranking_values
    low, high = np.full((2, len(cases)), np.nan)
    np.fmin.at(low, panel.case, values)
    np.fmax.at(high, panel.case, values)
    measures = {}
    if statements_of := contradicted(row.judge):
        measures["contradicted"] = wrong = np.full(len(cases), np.nan)
        for (case_id, _), statements in statements_of.items():
            number = cases.index[case_id]
            wrong[number] = np.nan_to_num(wrong[number]) + bool(statements)
    measures["models_differ"] = high - low
    if people is not None:
        rated, relation = row.rated(people), row.people_relations(people)
        first, second = panel.pairs
        lost = np.nan_to_num(np.abs(rated[first] - rated[second]) * np.abs(relation - row.relations))
        measures["people_disagree"] = np.where(panel.per_case(~np.isnan(relation)) > 0, panel.per_case(lost), np.nan)
    if row.expected is not None:
        measures["least_sure"] = -selective.gaps(panel, row.expected)
    return measures


def worth_reading(cases: Cases, row: Row, people: People | None) -> dict[str, list[str]]:
    """Return, for each of `measures_of_cases`, the ids of the cases where it is highest, if it says something there."""
    lists = {}
    for name, measure in measures_of_cases(cases, row, people).items():
        most = None if name == "contradicted" else MOST_CASES
        order = np.argsort(np.where(np.isnan(measure), np.inf, -measure), kind="stable")[:most].tolist()
        sure = row.expected if name == "least_sure" else None
        least = ROUNDING if sure is None else -SURE * np.nanstd(sure)
        use = [case for case in order if measure[case] > least]
        lists[name] = [cases.records[case].id for case in use]
    return lists
