"""Rank candidates by a judge's verdicts: mean score, mean rank and win share per model, for the table after a run."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from automedeval.records import Verdict
from automedeval.rubrics import Rubric
from automedeval.stats.checklist import Score, checklist_score, mean_score, shares_of


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

    Args:
        points: case id → the points of its criteria, of the cases that a judge of criteria judges.
        words: case id → the number of words of each response.

    Attributes:
        longer: model → the comparisons of its responses in which its response has more words than the other one, and all.
    """

    def __init__(
        self,
        rubric: Rubric | None = None,
        points: Mapping[str, Sequence[float]] | None = None,
        words: Mapping[str, Sequence[int]] | None = None,
    ):
        self.rubric, self.points, self.words = rubric, points or {}, words or {}
        self.longer: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.verdicts = self.valid = self.cases = self.clipped = self.truncated = 0
        self._lacking = 0  # valid verdicts with scores and without expected ones
        self.errors: dict[str, int] = defaultdict(int)
        self.empty: Counter[str] = Counter()  # model → cases in which its response is empty
        self.unread: Counter[str] = Counter()  # model → cases in which no verdict says anything of its response
        self._open: dict[str, list[Verdict]] = defaultdict(list)
        self._scores: dict[str, _Mean] = defaultdict(_Mean)
        self._expected: dict[str, _Mean] = defaultdict(_Mean)
        self._ranks: dict[str, _Mean] = defaultdict(_Mean)
        self._checklist: dict[str, list[tuple[Score, list[float | None]]]] = defaultdict(list)
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
        if words := self.words.get(verdicts[0].case_id):
            self._compare_lengths(verdicts, words)
        if points := self.points.get(verdicts[0].case_id):
            return self._settle_criteria(verdicts, points)
        verdicts = [verdict for verdict in verdicts if verdict.valid]
        if not verdicts:
            return
        for verdict in verdicts:
            if verdict.choices and verdict.pair:
                for name, choice in verdict.choices.items():
                    self._add_choice(verdict.pair, name, choice)
        models = verdicts[0].extra["models"]
        empty = {models.index(name) for verdict in verdicts for name in verdict.empty}
        unread = {index for verdict in verdicts for index in verdict.unread}
        for verdict in verdicts:
            unread -= verdict.values.keys()
        for found, counts in ((empty, self.empty), (unread, self.unread)):
            counts.update(models[index] for index in found)
        self._lacking += sum(verdict.scores is not None and verdict.expected_scores is None for verdict in verdicts)
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

    def _compare_lengths(self, verdicts: list[Verdict], words: Sequence[int]) -> None:
        """Compare the lengths of the responses of a case of which verdicts say something, or of the two of a choice."""
        pairs = set(combinations(sorted({index for verdict in verdicts for index in verdict.values}), 2))
        pairs |= {(min(verdict.order), max(verdict.order)) for verdict in verdicts if verdict.choices}
        models = verdicts[0].extra["models"]
        for first, second in pairs:
            if second >= len(words):  # the reference, shown after the case's own responses
                continue
            for one, other in ((first, second), (second, first)):
                longer, compared = self.longer[models[one]]
                self.longer[models[one]] = longer + (words[one] > words[other]), compared + 1

    def _settle_criteria(self, verdicts: list[Verdict], points: Sequence[float]) -> None:
        for slot in sorted({verdict.order[0] for verdict in verdicts}):
            own = [verdict for verdict in verdicts if verdict.order[0] == slot]
            met = shares_of([each.checklist["met"] for each in own if each.checklist], len(points))
            model = own[0].extra["models"][slot]
            self._checklist[model].append((checklist_score(points, met), met))
            self.empty.update(own[0].empty)
            self.unread.update([model] if met.count(None) == len(met) else [])

    def _add_choice(self, pair: tuple[str, str], name: str, choice: str) -> None:
        worse = self.rubric is not None and self.rubric.criterion(name).polarity == "worse"
        for model in pair:
            self._wins[model][name].add(0.5 if choice not in pair else float((choice == model) != worse))

    def table(self) -> list[dict[str, str | float | int]]:
        """Return one row per model, the highest first: cases, mean score, mean expected score (if every verdict has them), mean
        rank, win share, and where there are any, cases with an empty and with an unread response. By criteria it has what
        `checklist_row` returns.

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
                if model in sums and (label != "expected" or not self._lacking):
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
        return sorted(rows, key=lambda row: ([-float(row.get(name, -math.inf)) for name in by], row["model"]))


def checklist_row(answers: Sequence[tuple[Score, list[float | None]]]) -> dict[str, float | int]:
    """Return the mean by HealthBench's rule over the responses that are wholly read, and what it can be over all responses."""
    met = [each for _, own in answers for each in own]
    means = {
        "score": mean_score([score.score for score, own in answers if None not in own]),
        "lowest": mean_score([score.lowest for score, _ in answers]),
        "highest": mean_score([score.highest for score, _ in answers]),
    }
    return {"responses": len(answers), "wholly read": sum(None not in own for _, own in answers)} | {
        **{name: value for name, value in means.items() if value is not None},
        "criteria": len(met),
        "met": sum(each > 0.5 for each in met if each is not None),
        "unread criteria": met.count(None),
    }


def _means(vectors: Iterable[tuple[float | None, ...]]) -> dict[int, float]:
    """Return position → mean over vectors, of the positions with a value."""
    means: dict[int, _Mean] = defaultdict(_Mean)
    for vector in vectors:
        for index, value in enumerate(vector):
            if value is not None:
                means[index].add(value)
    return {index: mean.value for index, mean in sorted(means.items())}
