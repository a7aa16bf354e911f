"""Rank candidates by the verdicts of one judge, for the table after a run; the report has intervals and comparisons."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import known_of_judge
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, rows_of
from automedeval.meta_evaluation.criteria.checklists import CriteriaVerdicts
from automedeval.meta_evaluation.criteria.report import candidates, read_shares
from automedeval.meta_evaluation.criteria.scores import scored
from automedeval.records import Verdict
from automedeval.reports.facts import JudgeProfile
from automedeval.rubrics import Rubric

UNRATED = "Not measured yet: the report compares it with people's ratings or labels."
BEST_FIRST = ("win share", "expected", "score", "highest")  # the columns by which the table is sorted


def rank(
    cases: Cases, verdicts: Sequence[Verdict], rubric: Rubric, file: Path
) -> tuple[list[dict[str, Any]], JudgeProfile]:
    """Return one row per model, the highest first, and what is known of the judge.

    Args:
        cases: the cases as they were shown.
        verdicts: those of one judge by one rubric on these cases, one or more.
        rubric: that of the run; a judge without a scale follows none.
        file: the verdicts' file.
    """
    if rubric.mode == "checklist":
        shown = defaultdict(list)
        for verdict in verdicts:
            shown[cases.index[verdict.case_id], verdict.order[0]].append(verdict)
        reading = CriteriaVerdicts(verdicts[0].judge, cases, shown, file)
        judge, shares = scored(cases, reading), read_shares(cases, reading)
        table = by_criteria(cases, reading, shares["unread"])
    else:
        judge, shares = JudgeVerdicts(cases, verdicts, rubric if rubric.name == verdicts[0].rubric else None), {}
        table = by_values(judge)
    table.sort(key=lambda row: ([-row.get(name, -math.inf) for name in BEST_FIRST], row["model"]))
    first = table[0]["model"] if any(verdict.valid for verdict in verdicts) else None
    facts: dict[str, Any] = shares | {"agreement": [UNRATED], "valid": None, "steps": ()}  # the run prints the others
    return table, known_of_judge(cases, rows_of([judge])[0], first, **facts)


def by_values(judge: JudgeVerdicts) -> list[dict[str, Any]]:
    """Return a row for each model of which verdicts say something, or that has an unread response.

    It has the cases, the mean score, the mean expected score if every verdict has them, the share of comparisons won, a tie
    counting half, and where there are any, the numbers of empty and of unread responses. A pairwise judge has the share on
    each criterion, and their mean.
    """
    cases, rows = judge.cases, rows_of([judge])
    table: dict[str, dict[str, Any]] = {model: {} for model in cases.models}
    for name, values in (("score", rows[0].scores), ("expected", rows[0].expected)):
        for model, mean, count in _means(cases, cases.model_of, values):
            table[model] |= {"cases": count, name: mean}
    sides = np.concatenate([cases.model_of[side] for side in cases.panel.pairs])
    for row in rows:
        for model, share, count in _means(cases, sides, np.concatenate([1 + row.relations, 1 - row.relations]) / 2):
            table[model] |= {"win share": share} if row.criterion is None else {"pairs": count, row.criterion: share}
    for standing in table.values() if judge.criteria else ():
        shares = [standing[name] for name in judge.criteria if name in standing]
        standing |= {"win share": sum(shares) / len(shares)} if shares else {}
    counts = {"empty": judge.by_model(cases.empty), "unread": judge.by_model(judge.unread)}
    counts = {name: numbers for name, numbers in counts.items() if numbers}
    return [
        {"model": model} | standing | {name: numbers.get(model, 0) for name, numbers in counts.items()}
        for model, standing in table.items()
        if standing or model in counts.get("unread", ())
    ]


def _means(cases: Cases, models: np.ndarray, values: np.ndarray | None) -> list[tuple[str, float, int]]:
    """Return (model, mean, number) of the values of each model that has some; `models` has the model of each value."""
    if values is None:
        return []
    defined = ~np.isnan(values)
    counts, sums = np.bincount(models[defined]), np.bincount(models[defined], values[defined])
    return [(cases.models[k], float(sums[k] / counts[k]), int(counts[k])) for k in np.flatnonzero(counts)]


def by_criteria(cases: Cases, reading: CriteriaVerdicts, unread: dict[str, int]) -> list[dict[str, Any]]:
    """Return the mean of each model by HealthBench's rule over responses that are wholly read, and what it can be over all."""
    table = []
    for model, means in candidates(cases, reading).items():
        scores = {"score": means["clip_mean"], "lowest": means["lowest"], "highest": means["highest"]}
        counts = {"unread criteria": means["unread"], "empty": means["empty"], "unread": unread[model]}
        row = {"model": model, "responses": means["responses"], "wholly read": means["read"]}
        table.append(row | {name: score for name, score in scores.items() if score is not None} | counts)
    return table
