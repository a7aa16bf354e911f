"""What changed from one version of a model, or of a judge, to the next, answer by answer: for the grid and the first screen."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.candidates import MOST_MODELS
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.report.grid import NEWLY, WORDS, marks_of
from automedeval.meta_evaluation.table import Row
from automedeval.records import RecordError, question_text
from automedeval.records.text import in_a_row
from automedeval.stats.agreement import relation_of
from automedeval.stats.bootstrap import Estimate
from automedeval.stats.prediction_powered import prediction_powered

DIGEST = re.compile(r"[0-9a-f]{12}(/epoch-\d+)?")  # an id that says nothing, of a table without ids
FIRST_WORDS = 60  # letters of a question that stand for its id


def candidates_of(cases: Cases, chosen: Iterable[str] = (), option: str = "") -> dict[str, np.ndarray]:
    """Return the response of every candidate in every case: candidate → int [cases], -1 where there is none.

    Args:
        chosen: the names of the candidates to return; empty for all.
        option: what named them, if anything did.

    Raises:
        RecordError: a name of `chosen` that no candidate has, or names of all that are no models.
    """
    chosen = list(dict.fromkeys(chosen))
    if len(cases.models) > MOST_MODELS and not chosen:
        names = f"{len(cases.models)} model names in {len(cases)} cases"
        raise RecordError(f"{cases.source}: {names}: these are not models, and candidates are not compared")
    if unknown := [name for name in chosen if name not in cases.models]:
        names = in_a_row([*cases.models[:8], *["…"] * (len(cases.models) > 8)])
        raise RecordError(f"{option}: {cases.source} has no model {unknown[0]!r}; it has {names}")
    responses = {}
    for name in chosen or cases.models:
        at = np.flatnonzero(cases.model_of == cases.models.index(name))
        responses[name] = np.full(len(cases), -1)
        responses[name][cases.panel.case[at]] = at
    return responses


def in_common(candidates: Mapping[str, np.ndarray], *names: str) -> np.ndarray:
    """Return the responses of two candidates in the cases that both answered: int [2, cases in common]."""
    sides = np.stack([candidates[name] for name in names])
    return sides[:, (sides >= 0).all(axis=0)]


def better(row: Row, cases: Cases, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the relation by a judge of the first response to the second, from -1 (worse) to 1: float [pairs of indices]."""
    turn = np.where(first < second, 1.0, -1.0)
    places = [cases.pair_index.get((min(i, j), max(i, j)), -1) for i, j in zip(first.tolist(), second.tolist())]
    return turn * np.append(row.finest, np.nan)[places]


def paired_difference(gaps: np.ndarray, scale: tuple[float, float] | None) -> Estimate:
    """Return the mean of a judge's differences, float [cases], NaN where one has no score; no interval exceeds the scale."""
    found = prediction_powered(np.full(len(gaps), np.nan), gaps).naive
    if found.low is None or found.high is None or scale is None:
        return found
    most = float(scale[1] - scale[0])
    return replace(found, low=max(found.low, -most), high=min(found.high, most))


def changes_of(cases: Cases, rows: Sequence[Row], baseline: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Find what changed: from the first judge to the next one on its scale; else from the baseline to every other model.

    Returns:
        For the new judge, or each other model: "old" and "new" version, "of" ("judge" or "model"), how many answers can be
        "compared", and how many have each mark of `WORDS`. And the arguments of `grid_of` that show it.

    Raises:
        RecordError: no version has a case in common with the old one.
    """
    old, everything = rows[0], np.arange(cases.responses)
    others = (row for row in rows if row.judge is not old.judge)
    alike = (row for row in others if (row.criterion, row.judge.scale) == (old.criterion, old.judge.scale))
    if (new := next(alike, None)) is not None:
        shown, both = {new.name: everything}, bool(((old.judge.given > 0) & (new.judge.given > 0)).any())
        gap, marks = _marked(cases, (old, everything), (new, everything))
        grid: dict[str, Any] = {"main": new, "of_judges": True, "before": (old.ranking_values,), "old": old.name}
    else:
        responses = candidates_of(cases, [baseline, *cases.models], "--baseline")
        shown = {name: in_common(responses, baseline, name)[1] for name in responses if name != baseline}
        both = any(len(at) for at in shown.values())
        _, gap, marks = against_baseline(cases, old, baseline)
        grid = {"main": old, "base": baseline, "sort": "lost"}
    before = old.name if new else baseline
    if shown and not both:
        raise RecordError(f"{cases.source}: {before!r} and {next(iter(shown))!r} have no case in common")
    records = []
    for name, at in shown.items():
        about = {"of": "judge" if new else "model", "old": before, "new": name, "judge": grid["main"].name}
        counts = {mark: int(marked[at].sum()) for mark, marked in marks.items()}
        records.append(about | {"compared": int((~np.isnan(gap[at])).sum())} | counts)
    return records, grid | {"changed": (gap, marks)}


def against_baseline(cases: Cases, row: Row, baseline: str) -> tuple[dict[str, Any], np.ndarray, dict[str, np.ndarray]]:
    """Compare every model with one of them, case by case, by one line.

    Returns:
        The record: the baseline, and of every other model in how many cases it is "better", "worse" and "equal", the "cases"
        in which it is worse, the worst first, the "means" of the baseline and of it in the cases that both have, and their
        "difference"; "questions" has the first words of those cases whose id is a digest. And the gap and the marks of all
        answers: of scores, new less old, float [responses], NaN where not both have one; mark → bool [responses].

    Raises:
        RecordError: no model has this name.
    """
    responses = candidates_of(cases, [baseline, *cases.models], "--baseline")
    gaps, marks = np.full(cases.responses, np.nan), {name: np.zeros(cases.responses, bool) for name in WORDS}
    values = row.ranking_values
    record: dict[str, Any] = {"name": baseline, "models": {}, "questions": {}}
    for name in cases.models:
        if name == baseline:
            continue
        old, new = in_common(responses, baseline, name)
        gap, marked = _marked(cases, (row, old), (row, new))
        gaps = np.where(np.isnan(gap), gaps, gap)
        marks = {each: marks[each] | marked[each] for each in marks}
        lost = np.flatnonzero(marked["lost"])
        worse = [cases.records[cases.panel.case[at]] for at in lost[np.argsort(gap[lost], kind="stable")]]
        better, both = int(marked["won"].sum()), ~np.isnan(gap[new])
        counts = {"better": better, "worse": len(worse), "equal": int(both.sum()) - better - len(worse)}
        means = [float(values[at][both].mean()) if both.any() else None for at in (old, new)]
        about = {"cases": [case.id for case in worse], "means": means}
        record["models"][name] = counts | about | {"difference": paired_difference(gap[new], row.judge.scale).to_dict()}
        for case in (case for case in worse if DIGEST.fullmatch(case.id)):
            question = " ".join(question_text(case.question).split())
            record["questions"][case.id] = f"“{question[:FIRST_WORDS]}{'…' * (len(question) > FIRST_WORDS)}”"
    return record, gaps, marks


def _marked(
    cases: Cases, old: tuple[Row, np.ndarray], new: tuple[Row, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the gap and the marks, as `against_baseline` does, of new answers beside the old ones: (line, their places)."""
    (old_row, old_at), (new_row, new_at) = old, new
    gap = np.full(cases.responses, np.nan)
    if old_row is new_row and new_row.values is None:  # a judge of pairs: what it says of these two
        gap[new_at] = better(new_row, cases, new_at, old_at)
    else:
        gap[new_at] = new_row.ranking_values[new_at] - old_row.ranking_values[old_at]
    relation = relation_of(gap.round(2))  # as it is shown
    if old_row is new_row:  # two models: an empty answer loses a tie
        ties = relation[new_at] == 0
        relation[new_at] += ties * (cases.empty[old_at] * 1.0 - cases.empty[new_at])
    marks = {"won": relation > 0, "lost": relation < 0}
    sides = [(marks_of(row.judge), at) for row, at in (old, new)]
    for name, parts in NEWLY.items():
        had, has = (np.any([marked[part][at] for part in parts], axis=0) for marked, at in sides)
        marks[f"newly_{name}"] = np.zeros(cases.responses, bool)
        marks[f"newly_{name}"][new_at] = has & ~had
    return gap, marks
