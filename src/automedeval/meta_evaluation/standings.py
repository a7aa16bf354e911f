"""Rank candidates by the verdicts of one judge, for the table after a run; the report has more comparisons."""

import math
from collections.abc import Sequence
from pathlib import Path

from automedeval.meta_evaluation.agreement.candidates import means_by_model, ranked, shares_won
from automedeval.meta_evaluation.agreement.judge_facts import (
    UNRATED,
    differing_by_model,
    known_of_judge,
)
from automedeval.meta_evaluation.criteria.report import candidates
from automedeval.meta_evaluation.facts import JudgeProfile
from automedeval.meta_evaluation.harm.report import counts_table, harm_result
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import Row, VerdictTable, rows_of
from automedeval.records import JsonObject, Verdict
from automedeval.rubrics import Rubric
from automedeval.stats import bootstrap

WON = "share of pairs won"
MEAN = "mean score"


def rank(
    cases: Cases, verdicts: Sequence[Verdict], rubric: Rubric, file: Path
) -> tuple[list[JsonObject], JudgeProfile]:
    """Return one row per model, the highest first, and what is known of the one judge that gave the verdicts in the file."""
    by_rubric = rubric if rubric.name == verdicts[0].rubric else None
    judge = VerdictTable(cases, verdicts, by_rubric, files=(file,))
    if rubric.in_words:
        return by_degrees(judge)
    row = rows_of([judge])[0]
    by_model = figures_by_model(judge, row)
    stands = ranked(cases, row.wins)  # as in the report
    unranked = by_model.keys() - {*stands["order"]}
    rest = sorted(unranked, key=lambda model: (-_value(by_model[model]), model))
    table = []
    for model in (*stands["order"], *rest):
        rank = {"rank": stands["ranks"].get(model)} if stands["ranks"] else {}
        table.append({"model": model} | rank | by_model[model])
    # The run prints the next command itself.
    return table, known_of_judge(row, steps=(), unclear=stands["unclear"])


def by_degrees(judge: VerdictTable) -> tuple[list[JsonObject], JudgeProfile]:
    """Return how many responses of each model have which degree by a rubric in words, and what is known of the judge."""
    harm = harm_result(judge.cases, [judge], bootstrap.RESAMPLES)
    counts = counts_table(harm)
    table = [dict(zip(counts.head, row)) for row in counts.rows]
    for row in table:
        del row["by"]
    return table, JudgeProfile(
        judge.name, agreement=[UNRATED], valid=float(judge.is_valid.mean()), harm=harm
    )


def figures_by_model(judge: VerdictTable, row: Row) -> JsonObject:
    """Return model → its figures, for each model of which verdicts say something, or that has an unread response.

    They are the model's own cases with a score and the mean in these (a report's is in the cases of
    all), the share of pairs won, a tie counting half, each an estimate as plain data, and where
    there are any, the numbers of empty and of unread responses, and of those with a number that
    differs from the reference.
    """
    cases = judge.cases
    table: JsonObject = {model: {} for model in cases.models}
    means = {} if row.best is None else means_by_model(cases, row.best)
    for model, mean in means.items():
        table[model] |= {"own cases": mean.n, MEAN: mean}
    for model, share in shares_won(cases, row.wins).items():
        table[model] |= {"pairs": share.n, WON: share} if judge.criteria else {WON: share}
    for model, figures in candidates(judge).items() if judge.on_criteria else ():
        table[model] |= {name: figures[name] for name in ("harm", "unread criteria")}
    differs = {model: count for model, (count, *_) in differing_by_model(judge).items() if count}
    unread = judge.by_model(judge.unread)
    counts = {"empty": judge.by_model(judge.silent), "unread": unread, "a number differs": differs}
    by_model = {}
    for model, figures in bootstrap.plain(bootstrap.estimate(table, cases.clusters)).items():
        if figures or model in unread:
            more = {name: numbers.get(model, 0) for name, numbers in counts.items() if numbers}
            by_model[model] = figures | more
    return by_model


def _value(row: JsonObject) -> float:
    """Return the share of pairs won, else the mean score, below every other where there is neither."""
    figure = row.get(WON) or row.get(MEAN)
    return -math.inf if figure is None or figure["value"] is None else figure["value"]
