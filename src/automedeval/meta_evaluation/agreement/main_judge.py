"""Choose the main judge, which the report shows first, and measure its agreement with people on cases that did not choose it.

With `LEAST_RATED` rated cases or more the main judge is the one whose concordance with people is highest. A figure from the
same cases would be too high for the judge that did best on them. It is therefore cross-fitted: the rated cases are dealt into
`FOLDS` folds, the judge of each fold is chosen on the other folds, and the agreement is that of the chosen judges' verdicts,
each on its own fold (cross-validation of the whole procedure, choice included: Varma and Simon 2006). Averaged over draws of
the cases it has no bias from the choice. Where all folds choose the same judge it equals this judge's own agreement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.baselines import best_baseline, differences, paired
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import contradicted
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.facts import LEAST_RATED
from automedeval.meta_evaluation.table import Row, VerdictTable, judged_relations
from automedeval.records import RecordError
from automedeval.stats import agreement, bootstrap, selective
from automedeval.stats.folds import deal, each_fold

FOLDS = 5
ROUNDING = 1e-12  # of means of ratings that are equal
MOST_CASES = 10  # of each list of cases to look at, but of those of statements


@dataclass(frozen=True)
class MainJudge:
    """The main judge, and how it was chosen."""

    row: Row  # its line of the report: the judge, or one criterion of a judge of pairs
    how: str  # "given" (--main_judge), "only" (there is one), "cross-fitted", or "first" (of --verdicts: few rated cases)
    rated_cases: int  # with a pair that people ordered, and that all judges, or the given or only one, were asked about
    folds: tuple[Row, ...]  # the line that the other folds chose, for each fold; empty unless cross-fitted
    row_of_case: tuple[Row, ...]  # the line whose verdicts count for the agreement on each case
    relation: np.ndarray | None  # people's relations of the pairs that count [pairs], else NaN; None: no ratings


def choose(cases: Cases, rows: Sequence[Row], people: People | None, wanted: str | None = None) -> MainJudge:
    """Choose the main judge among the lines of the report that are no baselines.

    Args:
        wanted: the name of a line or of a judge; the name of a judge of pairs is its first criterion. None: choose.

    Raises:
        RecordError: no line or judge has the wanted name.
    """
    rows = [row for row in rows if row.judge.kind == "judge"]
    named = [row for row in rows if wanted in (row.name, row.judge.name)]
    if wanted is not None and not named:
        names = ", ".join(row.name for row in rows)
        raise RecordError(f"--main_judge: no judge is called {wanted!r}; there are {names}")
    rivals = named[:1] if wanted is not None else rows
    relation = None
    ordered = np.zeros(len(cases), bool)
    if people is not None:
        asked = [row.people_relations(people) for row in rivals]
        relation = np.where(np.isnan(asked).any(axis=0), np.nan, asked[0])
        ordered = cases.panel.per_case(np.nan_to_num(relation) != 0) > 0
    count = int(ordered.sum())
    how = "cross-fitted" if count >= LEAST_RATED else "first"
    if len(rivals) == 1:
        how = "only" if wanted is None else "given"
    if how != "cross-fitted" or relation is None:
        first = rivals[0]
        if how == "first" and people is not None:
            relation = first.people_relations(people)
        return MainJudge(first, how, count, (), (first,) * len(cases), relation)
    credits = [agreement.concordance(cases.panel, relation, row.finest) for row in rivals]

    def best(use: np.ndarray) -> Row:
        values = [credit.of(credit.sums(use[None].astype(float)))[0] for credit in credits]
        return rivals[int(np.argmax(values))]

    # The cases are numbered by a hash of their ids, so that this deals them at random, whatever the order of the file.
    fold = deal(np.where(ordered, np.cumsum(ordered) - 1, np.arange(len(cases))), FOLDS)
    folds = tuple(best(ordered & ~held) for held in each_fold(fold))
    return MainJudge(best(ordered), how, count, folds, tuple(folds[number] for number in fold.tolist()), relation)


def describe(cases: Cases, main: MainJudge, people: People | None, baselines: Sequence[Row]) -> dict[str, Any]:
    """Return the record `main_judge` of agreement.json, with a `Statistic` for every figure.

    "baselines" has the concordances of the judge and of each baseline on the same pairs; `finish` makes "best_baseline" of it.
    """
    row = main.row
    record: dict[str, Any] = {"name": row.name, "how": main.how, "rated_cases": main.rated_cases}
    record |= {"folds": [each.name for each in main.folds], "valid_rates": _valid_rates(cases, row.judge)}
    record["cases"] = worth_reading(cases, row, people)
    if people is None or main.relation is None:
        return record
    case = cases.panel.case[cases.panel.pairs[0]]
    finest = _of_cases(main.row_of_case, case, lambda each: each.finest)
    record["concordance"] = agreement.concordance(cases.panel, main.relation, finest)
    relations = {each.name: each.people_relations(people) for each in baselines} | {row.name: main.relation}
    record["baselines"] = [paired(cases, relations, row, each, finest) for each in baselines]
    scores = {each: each.values for each in set(main.row_of_case) if each.values is not None}
    if len(scores) == len(set(main.row_of_case)):
        values = _of_cases(main.row_of_case, cases.panel.case, scores.__getitem__)
        asked = _of_cases(main.row_of_case, cases.panel.case, lambda each: each.judge.asked)
        record |= beside_one_rater(cases, people, values, asked)
    return record


def finish(record: dict[str, Any], sees_reference: bool | None) -> None:
    """Replace the estimates of `describe` for the baselines by the comparison with the best of them."""
    if "baselines" in record:
        found = {each["second"]: each for each in differences(record.pop("baselines"))}
        gaps = {name: each["difference"] for name, each in found.items()}
        record["best_baseline"] = best = best_baseline(gaps, sees_reference)
        if best is not None:
            best["concordance"] = found[best["name"]]["concordances"][1]


def beside_one_rater(cases: Cases, people: People, values: np.ndarray, asked: np.ndarray) -> dict[str, Any]:
    """Compare a judge, and one rater, with the mean of the other raters on the same pairs; empty if there is one rater.

    Args:
        values, asked: the judge's scores, and whether it was asked about each response [responses].
    """
    if (each_rater := people.leave_one_out(cases.panel)) is None:
        return {}
    panel, keep, rater, others = each_rater
    times = len(people.annotators)
    same = panel.relations(np.where(np.tile(asked, times)[keep], others, np.nan))
    every, empty = (np.tile(each, times)[keep] for each in (values, cases.empty))
    judged = {"judge": judged_relations(panel, every, empty), "one_rater": panel.relations(rater)}
    concordances = {name: agreement.concordance(panel, same, each) for name, each in judged.items()}
    return {"against_the_other_raters": concordances}


def _of_cases(rows: Sequence[Row], case: np.ndarray, values: Callable[[Row], np.ndarray]) -> np.ndarray:
    """Return values whose entries, of the given cases, come from the line of their case."""
    lines = list(dict.fromkeys(rows))
    number = np.array([lines.index(row) for row in rows])[case]
    return np.stack([values(line) for line in lines])[number, np.arange(len(case))]


def _valid_rates(cases: Cases, judge: VerdictTable) -> dict[str, bootstrap.Statistic]:
    """Return, for each model, the share of the verdicts due on its responses that are there and valid."""
    valid, due = judge.valid_by_response
    rates = {}
    for number, name in enumerate(cases.models):
        of_model = cases.model_of == number
        if due[of_model].any():
            sums = [cases.panel.per_case(np.where(of_model, each, 0.0), "responses") for each in (valid, due)]
            rates[name] = bootstrap.ratio(sums[0], sums[1], reason="no verdict")
    return rates


def values_of_responses(cases: Cases, row: Row) -> np.ndarray:
    """Return a line's scores, of a judge of pairs the pairs won less those lost: float [responses], NaN where not known."""
    if row.values is not None:
        return row.values
    panel, won = cases.panel, np.nan_to_num(row.relations)
    values = np.zeros(cases.responses)
    for side, way in zip(panel.pairs, (1, -1)):
        values += np.bincount(side, way * won, minlength=cases.responses)
    values[panel.per_case(~np.isnan(row.relations))[panel.case] == 0] = np.nan
    return values


def measures_of_cases(cases: Cases, row: Row, people: People | None) -> dict[str, np.ndarray]:
    """Return what makes cases worth reading: measure → float [cases], the higher the more; NaN where it is not known.

    - contradicted: the number of responses with a statement that contradicts its evidence; only where statements were checked.
    - models_differ: the largest less the smallest score of a case; of a judge of pairs, pairs won less lost.
    - people_disagree: the pairs in another order than people's, weighted by the gap between people's scores.
    - least_sure: minus the mean gap between the expected scores of two responses; without these minus the share of pairs with
      the same relation in all orders.
    """
    panel = cases.panel
    values = values_of_responses(cases, row)
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
    elif row.consistent is not None:
        measures["least_sure"] = -bootstrap.divide(*row.consistent)
    return measures


def worth_reading(cases: Cases, row: Row, people: People | None) -> dict[str, list[str]]:
    """Return, for each of `measures_of_cases`, the ids of the cases where it is highest; only those above zero."""
    lists = {}
    for name, measure in measures_of_cases(cases, row, people).items():
        most = None if name == "contradicted" else MOST_CASES  # that list is whole
        order = np.argsort(np.where(np.isnan(measure), np.inf, -measure), kind="stable")[:most].tolist()
        least = -np.inf if name == "least_sure" else ROUNDING
        use = [case for case in order if measure[case] > least]
        lists[name] = [cases.records[case].id for case in use]
    return lists
