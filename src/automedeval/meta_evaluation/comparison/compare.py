"""Compare candidates by many verdicts and few ratings.

Every figure is estimated in three ways, for every judge: from the ratings alone, from the verdicts alone, and from both. The
statistics are in `stats.prediction_powered`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import known_of_judge, notes_on
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.facts import credit, facts_of
from automedeval.meta_evaluation.report.changes import better, candidates_of, changes_of, in_common
from automedeval.meta_evaluation.table import Row, VerdictTable, rows_of
from automedeval.records import RecordError
from automedeval.stats import bootstrap
from automedeval.stats.agreement import concordance, relation_of
from automedeval.stats.prediction_powered import Powered, prediction_powered

NO_SCORES = "this judge compares pairs and gives no scores"
OFF_SCALE = "this judge's figures are not on people's scale"


def scales_of(
    cases: Cases, people: People, rows: Sequence[Row], notes: list[str]
) -> dict[Row, bool]:
    """Return the judges that have a valid verdict, and whether the scores of each are on people's scale.

    Raises:
        RecordError: no judge has one.
    """
    ratings = people.scores[~np.isnan(people.scores)]
    scales = {}
    for row in rows:
        if not row.criteria and row.values is None:
            notes.append(f"{row.name} has no valid verdict on these cases, and is left out")
            continue
        scale = row.judge.scale
        scales[row] = scale is not None and bool(
            ((scale[0] <= ratings) & (ratings <= scale[1])).all()
        )
        if scale is not None and row.values is not None and not scales[row]:
            what = f"{row.name} scores from {scale[0]} to {scale[1]}"
            notes.append(f"{what}, people on another scale: its own means are left out")
    if not scales:
        raise RecordError(f"no judge has a valid verdict on a case of {cases.source}")
    return scales


def compare(
    cases: Cases, people: People, rows: Sequence[Row], candidates: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return the figures of `comparison.json`: nested dicts with numbers, `Powered` and `bootstrap.Estimate` as leaves.

    Args:
        candidates: name → its response in every case, see `candidates_of`; the others are compared with the first.
    """
    notes: list[str] = []
    judges = scales_of(cases, people, rows, notes)
    lead = next(iter(judges)).name
    scores = {row.name: row.values for row in judges if row.values is not None}
    result: dict[str, Any] = {"lead": lead, "judges": {}, "models": {}}
    for row, on_scale in judges.items():
        about = {"name": row.judge.name, "on_scale": on_scale}
        result["judges"][row.name] = about | {
            "concordance": concordance(cases.panel, people.relations, row.finest)
        }
    for name, places in candidates.items():
        at = places[places >= 0]
        judged = {judge: values[at] for judge, values in scores.items()}
        result["models"][name] = {"mean": _figures(judges, people.scores[at], judged)}
    pairs = []
    first, *others = candidates
    for second in others:
        sides = in_common(candidates, first, second)
        both = sides.shape[1]
        if both < 2:
            notes.append(f"{first} and {second} answered {both} cases in common: not compared")
            continue
        record: dict[str, Any] = {"pair": [first, second], "cases": both}
        gaps = people.gaps(*sides)
        relation_by = {row.name: better(row, cases, *sides) for row in judges}
        judged = relation_by | {
            name: values[sides[0]] - values[sides[1]] for name, values in scores.items()
        }
        won = {name: (1 + relation) / 2 for name, relation in relation_by.items()}
        record["difference"] = _figures(judges, gaps, judged)
        record["win_rate"] = _figures(judges, (1 + relation_of(gaps)) / 2, won, (0.0, 1.0))
        pairs.append(record)
    return bootstrap.estimate(result, len(cases)) | {"pairs": pairs, "notes": notes}


def comparison(
    cases: Cases,
    people: People | None,
    judges: Sequence[VerdictTable],
    notes: Sequence[str] = (),
    baseline: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of `comparison.json`, and the arguments of `grid_of` that show what changed.

    The content is the figures of `compare`, and what is known of the leading judge.

    Args:
        people: their ratings; None if there are none, and all is by the judges alone.
        notes: those of the verdicts' files.

    Raises:
        RecordError: a fault of `candidates_of` or `scales_of`.
    """
    people = people or People(
        cases.panel, [], {"none": np.full((cases.responses, 1), np.nan)}, True
    )
    notes = [*people.notes, *notes, *(note for judge in judges for note in notes_on(judge))]
    rows = rows_of(judges)
    candidates = candidates_of(cases)
    if baseline is not None:
        candidates = candidates_of(cases, [baseline, *candidates], "--baseline")
    figures = compare(cases, people, rows, candidates)
    result = bootstrap.plain(figures, Powered)
    lead = next(row for row in rows if row.name == result["lead"])
    changes, grid = changes_of(cases, lead, next(iter(candidates)))
    rated = len(np.unique(cases.panel.case[~np.isnan(people.scores)]))
    figure = result["judges"][lead.name]["concordance"]
    agreement = credit(lead.name, figure, lead.rated_cases(people)) if rated else {}
    result["facts"] = facts_of(known_of_judge(cases, lead, **agreement))
    result["cases"] = {
        "file": cases.source,
        "cases": len(cases),
        "responses": cases.responses,
        "rated_cases": rated,
    }
    result |= {
        "changes": changes,
        "baseline": next(iter(candidates)),
        "notes": notes + result["notes"],
    }
    return result, grid


def _figures(
    judges: Mapping[Row, bool],
    people: np.ndarray,
    judged: Mapping[str, np.ndarray],
    bounds: tuple[float, float] | None = None,
) -> dict[str, Powered]:
    """Return three estimates of a figure by every judge; a judge without values has that of the ratings alone."""
    figures = {}
    for row, on_scale in judges.items():
        powered = prediction_powered(
            people, judged.get(row.name, np.full(len(people), np.nan)), bounds
        )
        if row.name not in judged:
            gap = bootstrap.Estimate(None, reason=NO_SCORES)
            powered = replace(powered, interval=gap, naive=gap, weight=None, worth=None, invalid=0)
        elif bounds is None and not on_scale:
            reason = NO_SCORES if row.values is None else OFF_SCALE
            powered = replace(powered, naive=bootstrap.Estimate(None, reason=reason))
        figures[row.name] = powered
    return figures
