"""Rank candidates by a judge's verdicts: mean score, mean rank and win share per model, for the table after a run."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from automedeval.records import Verdict
from automedeval.rubrics import Rubric
from automedeval.stats.checklist import mean_score


@dataclass
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    @property
    def value(self) -> float:
        return self.total / self.count


class Standings:
    """Sum up the verdicts of one judge and one rubric per model; memory grows with models, not with cases.

    A case's verdicts may come in any order; a case counts once all its `expected` verdicts have been added. Several orders,
    groups and runs of a case are averaged over the valid verdicts. An invalid verdict counts in `valid_rate` only.
    """

    def __init__(self, rubric: Rubric | None = None):
        self.rubric = rubric
        self.verdicts = self.valid = self.cases = self.clipped = self.truncated = 0
        self.errors: dict[str, int] = defaultdict(int)
        self.empty: Counter[str] = Counter()  # model → cases in which its response is empty
        self.unread: Counter[str] = Counter()  # model → cases in which no verdict says anything of its response
        self._open: dict[str, list[Verdict]] = defaultdict(list)
        self._scores: dict[str, _Mean] = defaultdict(_Mean)
        self._expected: dict[str, _Mean] = defaultdict(_Mean)
        self._ranks: dict[str, _Mean] = defaultdict(_Mean)
        self._checklist: dict[str, list[dict]] = defaultdict(list)
        self._wins: dict[str, dict[str, _Mean]] = defaultdict(lambda: defaultdict(_Mean))

    @property
    def valid_rate(self) -> float:
        return self.valid / self.verdicts if self.verdicts else 0.0

    def add(self, verdict: Verdict, expected: int) -> None:
        """Add a verdict of a case that has `expected` verdicts in all."""
        self.verdicts += 1
        self.valid += verdict.valid
        self.clipped += "clipped" in verdict.extra
        self.truncated += "truncated" in verdict.extra
        if not verdict.valid:
            self.errors[verdict.error or "unknown"] += 1
        self._open[verdict.case_id].append(verdict)
        if len(self._open[verdict.case_id]) >= expected:
            self._settle(self._open.pop(verdict.case_id))

    def _settle(self, verdicts: list[Verdict]) -> None:
        self.cases += 1
        verdicts = [verdict for verdict in verdicts if verdict.valid]
        if not verdicts:
            return
        for verdict in verdicts:
            for name, choice in (verdict.choices or {}).items():
                self._add_choice(verdict.pair, name, choice)
        models = verdicts[0].extra["models"]
        empty = {models.index(name) for verdict in verdicts for name in verdict.empty}
        unread = {index for verdict in verdicts for index in verdict.unread}
        for verdict in verdicts:
            if verdict.checklist:
                self._checklist[models[verdict.order[0]]].append(verdict.checklist)
            unread -= verdict.values.keys()
        for found, counts in ((empty, self.empty), (unread, self.unread)):
            counts.update(models[index] for index in found)
        scores = _means(verdict.scores for verdict in verdicts if verdict.scores)
        expected = _means(verdict.expected_scores for verdict in verdicts if verdict.expected_scores)
        for values, sums in ((scores, self._scores), (expected, self._expected)):
            for index, value in values.items():
                sums[models[index]].add(value)
        values = scores or expected

        def beats(one: int, other: int) -> bool:
            gap = values[one] - values[other]
            return gap > 1e-9 or (gap >= -1e-9 and other in empty and one not in empty)

        for index in values if len(values) > 1 else ():
            above, below = (
                sum(beats(*pair) for pair in pairs)
                for pairs in (((other, index) for other in values), ((index, other) for other in values))
            )
            level = len(values) - 1 - above - below
            self._ranks[models[index]].add(above + 1 + level / 2)
            self._wins[models[index]]["score"].add((below + level / 2) / (len(values) - 1))

    def _add_choice(self, pair: tuple[str, str], name: str, choice: str) -> None:
        worse = self.rubric is not None and self.rubric.criterion(name).polarity == "worse"
        for model in pair:
            self._wins[model][name].add(0.5 if choice not in pair else float((choice == model) != worse))

    def table(self) -> list[dict[str, str | float | int]]:
        """Return one row per model, best first: cases, mean score, mean expected score, mean rank, win share, and where there
        are any, cases with an empty and with an unread response.

        A win share is the share of comparisons won, a tie counting half. A pairwise rubric has one per criterion; where a
        criterion's choice names the worse response, the other one wins.
        """
        rows = []
        for model in {*self._scores, *self._expected, *self._wins, *self._checklist, *self.unread}:
            row: dict[str, str | float | int] = {"model": model}
            if lists := self._checklist.get(model):
                row |= checklist_row(lists)
            if counted := self._scores.get(model) or self._expected.get(model):
                row["cases"] = counted.count
            for label, sums in (("score", self._scores), ("expected", self._expected), ("rank", self._ranks)):
                if model in sums:
                    row[label] = sums[model].value
            wins = self._wins.get(model, {})
            if "score" in wins:
                row["win share"] = wins["score"].value
            elif wins:
                row["pairs"] = max(share.count for share in wins.values())
                row["win share"] = sum(share.value for share in wins.values()) / len(wins)
                row |= {name: share.value for name, share in wins.items()}
            row |= {name: counts[model] for name, counts in (("empty", self.empty), ("unread", self.unread)) if counts}
            rows.append(row)
        by = ("win share", "expected", "score", "highest")
        return sorted(rows, key=lambda row: [-row.get(name, 0.0) for name in by] + [row["model"]])


def checklist_row(lists: list[dict]) -> dict[str, float | int]:
    """Return the mean of checklists by HealthBench's rule, what it can be where criteria are unread, and how many are read."""
    row: dict[str, float | int] = {"verdicts": len(lists)}
    for name in ("score", "lowest", "highest"):
        if (value := mean_score([each[name] for each in lists])) is not None:
            row[name] = value
    read = [each for own in lists for each in own["met"] if each is not None]
    return row | {
        "criteria met": sum(read),
        "read": len(read),
        "unread": sum(len(own["met"]) for own in lists) - len(read),
    }


def _means(vectors: Iterable[tuple[float | None, ...]]) -> dict[int, float]:
    """Return position → mean over vectors, of the positions with a value."""
    means: dict[int, _Mean] = defaultdict(_Mean)
    for vector in vectors:
        for index, value in enumerate(vector):
            if value is not None:
                means[index].add(value)
    return {index: mean.value for index, mean in sorted(means.items())}
