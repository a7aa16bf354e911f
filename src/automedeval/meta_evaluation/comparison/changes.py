"""What changed from one version of a model, or of a judge, to the next, answer by answer: for the grid and the first screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.main_judge import values_of_responses
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.report.grid import marks_of, pack_grid
from automedeval.meta_evaluation.report.page import MARKS, case_records
from automedeval.meta_evaluation.table import Row, VerdictTable
from automedeval.records import RecordError
from automedeval.stats.agreement import relation_of

NEWLY = {"contradicted": ("contradicted", "answers_disagree"), "empty": ("empty",), "failing": ("unread", "invalid")}
WORDS = {  # mark of a change → its words, of two models and of two judges
    "won": ("won", "scored higher"),
    "lost": ("lost", "scored lower"),
    **{f"newly_{name}": (f"newly {name}",) * 2 for name in NEWLY},
}


@dataclass(frozen=True)
class Changes:
    """The old and the new version, and what changed."""

    kind: str  # what there are two versions of, "model" or "judge"
    old: str
    new: str
    row: Row  # the new judge's line; of two models the line of the judge of both
    before: tuple[np.ndarray, ...]  # the old judge's scores: float [responses]; empty for two models
    gap: np.ndarray  # of an answer's scores, new less old: float [responses], NaN where not both have one
    marks: dict[str, np.ndarray]  # mark of `WORDS` → whether an answer of the new version has it: bool [responses]

    def to_dict(self) -> dict[str, Any]:
        """Return the versions, how many answers of the new version can be compared, and how many have each mark."""
        counts = {name: int(marked.sum()) for name, marked in self.marks.items()}
        names = {"of": self.kind, "old": self.old, "new": self.new, "judge": self.row.name}
        return names | {"compared": int((~np.isnan(self.gap)).sum())} | counts

    def grid(
        self,
        cases: Cases,
        judges: Sequence[VerdictTable],
        people: People | None,
        models: Sequence[str],
        flags: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return what `grid.html.jinja` needs: the cases with the models as columns, sorted by the size of the change."""
        records = case_records(cases, judges, people, self.row, {}, {})
        largest = {"won": self.gap, "lost": -self.gap, "models_differ": np.abs(self.gap)}
        for record in records:
            number = cases.index[record["id"]]
            start, end = cases.start[number : number + 2]
            record["measures"].pop("models_differ", None)
            if not np.isnan(self.gap[start:end]).all():
                record["measures"] |= {name: float(np.nanmax(each[start:end])) for name, each in largest.items()}
        of_judges = self.kind == "judge"
        marks = {name: words[of_judges] for name, words in WORDS.items()} | MARKS
        versions = {"old": self.old} if of_judges else {"base": self.old}
        packed = pack_grid(
            cases, records, self.row, marks, flags,
            models=models, marked=self.marks, before=self.before, gap="size of the change", **versions,
        )  # fmt: skip
        return {"grid": packed, "in_grid": len(records)}


def changes_of(cases: Cases, rows: Sequence[Row], candidates: Mapping[str, np.ndarray]) -> Changes | None:
    """Find what changed: between the first two judges on one scale; else between the first two candidates.

    Args:
        rows: the lines of the judges.
        candidates: see `compare.candidates_of`.

    Returns:
        None where there is one judge and one candidate.

    Raises:
        RecordError: the versions have no case in common.
    """
    old, new = rows[0], rows[0]
    for row in reversed(rows):
        if row.judge is not old.judge and (row.criterion, row.judge.scale) == (old.criterion, old.judge.scale):
            new = row
    shown = [cases.models.index(name) for name in candidates]
    old_at = new_at = np.flatnonzero(np.isin(cases.model_of, shown))
    names, kind = (old.name, new.name), "judge"
    if new is old:
        if len(candidates) < 2:
            return None
        kind = "model"
        for names in combinations(candidates, 2):
            both = np.stack([candidates[name] for name in names])
            old_at, new_at = both[:, (both >= 0).all(axis=0)]
            if len(new_at):
                break
    if not len(new_at) or not ((old.judge.given > 0) & (new.judge.given > 0)).any():
        raise RecordError(f"{cases.source}: {names[0]!r} and {names[1]!r} have no case in common")
    before, after = values_of_responses(cases, old), values_of_responses(cases, new)
    gap = np.full(cases.responses, np.nan)
    gap[new_at] = after[new_at] - before[old_at]
    relation = relation_of(gap)
    if kind == "model":  # an empty answer loses a tie
        ties = relation[new_at] == 0
        relation[new_at] += ties * (cases.empty[old_at] * 1.0 - cases.empty[new_at])
    marks = {"won": relation > 0, "lost": relation < 0}
    sides = [(marks_of(cases, old.judge), old_at), (marks_of(cases, new.judge), new_at)]
    for name, parts in NEWLY.items():
        had, has = (np.any([marked[part][at] for part in parts], axis=0) for marked, at in sides)
        marks[f"newly_{name}"] = np.zeros(cases.responses, bool)
        marks[f"newly_{name}"][new_at] = has & ~had
    return Changes(kind, *names, new, (before,) if kind == "judge" else (), gap, marks)
