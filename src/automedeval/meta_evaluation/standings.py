"""Rank candidates by the verdicts of one judge, for the table after a run; the report has more comparisons."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.candidates import MOST_MODELS, ranked
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import known_of_judge
from automedeval.meta_evaluation.criteria.report import candidates, read_shares
from automedeval.meta_evaluation.facts import JudgeProfile
from automedeval.meta_evaluation.harm.report import counts_table, harm_result
from automedeval.meta_evaluation.table import VerdictTable, rows_of
from automedeval.records import Verdict
from automedeval.rubrics import Rubric
from automedeval.stats import bootstrap

WON, MEAN = "share of pairs won", "mean score"
UNRATED = "Not measured yet: the report compares it with people's ratings or labels."


def rank(
    cases: Cases, verdicts: Sequence[Verdict], rubric: Rubric, file: Path
) -> tuple[list[dict[str, Any]], JudgeProfile]:
    """Return one row per model, the highest first, and what is known of the one judge that gave the verdicts in the file."""
    if rubric.in_words:
        return by_degrees(cases, verdicts, rubric)
    if rubric.mode == "checklist":
        judge = VerdictTable(cases, verdicts, file=file)
        shares = read_shares(cases, judge)
        table = by_criteria(cases, judge, shares["unread"])
    else:
        judge, shares = VerdictTable(cases, verdicts, rubric if rubric.name == verdicts[0].rubric else None), {}
        table = by_values(judge)
    rows = rows_of([judge])
    # Of a judge of pairs who wins on more of the criteria:
    stands = ranked(cases, rows[0].relations if len(rows) == 1 else np.sign(sum(row.relations for row in rows)))
    places = {model: place for place, model in enumerate(stands["order"])}  # as in the report
    values = {row["model"]: _value(row.get(WON) or row.get(MEAN) or row.get("highest")) for row in table}
    table.sort(key=lambda row: (places.get(row["model"], len(places)), -values[row["model"]], row["model"]))
    ranks = stands["ranks"]
    table = [{"model": row["model"]} | ({"rank": ranks.get(row["model"])} if ranks else {}) | row for row in table]
    facts: dict[str, Any] = shares | {"agreement": [UNRATED], "valid": None, "steps": ()}  # the run prints the others
    facts |= {"unclear": stands["unclear"]}
    return table, known_of_judge(cases, rows[0], **facts)


def by_degrees(cases: Cases, verdicts: Sequence[Verdict], rubric: Rubric) -> tuple[list[dict[str, Any]], JudgeProfile]:
    """Return how many responses of each model have which degree by a rubric in words, and what is known of the judge."""
    judge = VerdictTable(cases, verdicts, rubric)
    harm = harm_result(cases, [judge], None, bootstrap.RESAMPLES)
    counts = counts_table(harm)
    table = [{name: cell for name, cell in zip(counts.head, row) if name != "by"} for row in counts.rows]
    valid = sum(verdict.valid for verdict in verdicts) / len(verdicts)
    return table, JudgeProfile(judge.name, agreement=[UNRATED], valid=valid, harm=harm)


def by_values(judge: VerdictTable) -> list[dict[str, Any]]:
    """Return a row for each model of which verdicts say something, or that has an unread response.

    It has the cases, the mean score, of the expected scores if every verdict has them, the share of pairs won, a tie counting
    half, each an estimate as plain data, and where there are any, the numbers of empty and of unread responses. A
    pairwise judge has the share on each criterion, and their mean.
    """
    cases, rows = judge.cases, rows_of([judge])
    table: dict[str, dict[str, Any]] = {model: {} for model in cases.models}
    for model, mean, count in _means(cases, np.arange(cases.responses), rows[0].values):
        table[model] |= {"cases": count, MEAN: mean}
    sides = np.concatenate(cases.panel.pairs)
    for row in rows:
        halves = np.concatenate([1 + row.relations, 1 - row.relations]) / 2
        for model, share, count in _means(cases, sides, halves, (0.0, 1.0)):
            table[model] |= {WON: share} if row.criterion is None else {"pairs": count, row.criterion: share}
    table = bootstrap.estimate(table, len(cases))
    for standing_of_model in table.values() if judge.criteria else ():
        shares = [standing_of_model[name] for name in judge.criteria if name in standing_of_model]
        standing_of_model |= {WON: bootstrap.average(shares)} if shares else {}
    counts = {"empty": judge.by_model(cases.empty), "unread": judge.by_model(judge.unread)}
    counts = {name: numbers for name, numbers in counts.items() if numbers}
    return [
        {"model": model} | figures | {name: numbers.get(model, 0) for name, numbers in counts.items()}
        for model, figures in bootstrap.plain(table).items()
        if figures or model in counts.get("unread", ())
    ]


def _means(
    cases: Cases, places: np.ndarray, values: np.ndarray | None, bounds: tuple[float, float] | None = None
) -> Iterator[tuple[str, Any, int]]:
    """Yield (model, mean, number) of the values of each model that has some; `places` has the response of each value.

    Of more than `MOST_MODELS` models the means have no intervals, which would take much memory.
    """
    if values is None:
        return
    places, values = places[~np.isnan(values)], values[~np.isnan(values)]
    models, case = cases.model_of[places], cases.panel.case[places]
    counts, sums = np.bincount(models), np.bincount(models, values)
    for k in np.flatnonzero(counts):
        mean: Any = bootstrap.Estimate(float(sums[k] / counts[k]), n=int(counts[k]))
        if len(cases.models) <= MOST_MODELS:
            mean = bootstrap.mean_of(values[models == k], case[models == k], len(cases), bounds=bounds)
        yield cases.models[k], mean, int(counts[k])


def _value(figure: Any) -> float:
    """Return the value of an estimate or a number, below every other where there is none."""
    value = figure["value"] if isinstance(figure, dict) else figure
    return -math.inf if value is None else value


def by_criteria(cases: Cases, reading: VerdictTable, unread: dict[str, int]) -> list[dict[str, Any]]:
    """Return the mean of each model over responses that are wholly read, its harm, and what it can be over all."""
    table = []
    for model, means in bootstrap.plain(bootstrap.estimate(candidates(cases, reading), len(cases))).items():
        scores = {MEAN: means["mean"], "harm": means["harm"], "lowest": means["lowest"], "highest": means["highest"]}
        counts = {"unread criteria": means["unread"], "empty": means["empty"], "unread": unread[model]}
        row = {"model": model, "responses": means["responses"], "wholly read": means["read"]}
        table.append(row | {name: score for name, score in scores.items() if score is not None} | counts)
    return table
