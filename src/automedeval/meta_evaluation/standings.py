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
from automedeval.reports.facts import Known
from automedeval.rubrics import Rubric

UNRATED = "Not measured yet: the report compares it with people's ratings or labels."
BEST_FIRST = ("win share", "expected", "score", "highest")  # the columns by which the table is sorted

Standing = dict[str, str | float | int]


def rank(cases: Cases, verdicts: Sequence[Verdict], rubric: Rubric, file: Path) -> tuple[list[Standing], Known]:
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
    table.sort(key=lambda row: ([-float(row.get(name, -math.inf)) for name in BEST_FIRST], row["model"]))
    first = str(table[0]["model"]) if any(verdict.valid for verdict in verdicts) else None
    facts: dict[str, Any] = shares | {"agreement": [UNRATED], "valid": None, "steps": ()}  # the run prints the others
    return table, known_of_judge(cases, rows_of([judge])[0], first, **facts)


def by_values(judge: JudgeVerdicts) -> list[Standing]:
    """Return a row for each model of which verdicts say something, or that has an unread response.

    It has the cases, the mean score, the mean expected score if every verdict has them, the share of comparisons won, a tie
    counting half, and where there are any, the numbers of empty and of unread responses. A pairwise judge has the share on
    each criterion, and their mean.
    """
    cases, rows = judge.cases, rows_of([judge])
    counts = {"empty": judge.by_model(cases.empty), "unread": judge.by_model(judge.unread)}
    table = []
    for number, model in enumerate(cases.models):
        standing: Standing = {}
        for name, values in (("score", rows[0].scores), ("expected", rows[0].expected)):
            own = np.empty(0) if values is None else values[cases.model_of == number]
            if (own := own[~np.isnan(own)]).size:
                standing |= {"cases": own.size, name: float(own.mean())}
        won = {row.criterion: _won(cases, row.relations, number) for row in rows}
        shares = {criterion: float(gains.mean()) for criterion, gains in won.items() if gains.size}
        if judge.criteria and shares:
            standing["pairs"] = max(gains.size for gains in won.values())
        if shares:
            standing["win share"] = sum(shares.values()) / len(shares)
        standing |= {criterion: share for criterion, share in shares.items() if criterion is not None}
        if standing or model in counts["unread"]:
            numbers = {name: found.get(model, 0) for name, found in counts.items() if found}
            table.append({"model": model} | standing | numbers)
    return table


def _won(cases: Cases, relation: np.ndarray, model: int) -> np.ndarray:
    """Return 1, 0.5 or 0 for each comparison [pairs] of a model that it won, tied or lost."""
    first, second = (cases.model_of[side] == model for side in cases.panel.pairs)
    gains = np.where(first, relation, -relation)[first | second]
    return (gains[~np.isnan(gains)] + 1) / 2


def by_criteria(cases: Cases, reading: CriteriaVerdicts, unread: dict[str, int]) -> list[Standing]:
    """Return the mean of each model by HealthBench's rule over responses that are wholly read, and what it can be over all."""
    names = {
        "responses": "responses",
        "read": "wholly read",
        "clip_mean": "score",
        "lowest": "lowest",
        "highest": "highest",
    }
    names |= {"unread": "unread criteria"}
    table = []
    for model, means in candidates(cases, reading).items():
        standing = {name: means[key] for key, name in names.items() if means[key] is not None}
        table.append({"model": model} | standing | {"empty": means["empty"], "unread": unread[model]})
    return table
