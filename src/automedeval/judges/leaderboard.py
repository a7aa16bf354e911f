"""Which candidate is better: means, ranks, win shares and Bradley–Terry strengths per model.

`Standings` sums verdicts up as they come, for the table that ends a run; the functions below it work on arrays of relations
(see `agreement.Panel`) and give what the report needs for intervals.
"""

from collections import defaultdict
from collections.abc import Iterable

from automedeval.records import Verdict
from automedeval.rubrics import Rubric


class Standings:
    """Collect verdicts of one judge and one rubric, and tell how the models stand. Memory grows with models, not with cases.

    A case's verdicts may come in any order; `add` settles a case once all its `expected` verdicts are in. Several orders,
    groups and runs of a case are averaged over the valid verdicts. An invalid verdict counts in `valid_rate` and in nothing
    else.
    """

    def __init__(self, rubric: Rubric | None = None):
        self.rubric = rubric
        self.verdicts = self.valid = self.cases = self.clipped = self.truncated = 0
        self.errors: dict[str, int] = defaultdict(int)
        self._open: dict[str, list[Verdict]] = defaultdict(list)
        self._scores: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])  # sum, count
        self._expected: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self._ranks: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self._wins: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0]))

    @property
    def valid_rate(self) -> float:
        return self.valid / self.verdicts if self.verdicts else 0.0

    def add(self, verdict: Verdict, expected: int) -> None:
        """Take a verdict of a case of which `expected` verdicts are to come in all."""
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
        scores = _means(verdict.scores for verdict in verdicts if verdict.scores)
        expected = _means(verdict.expected_scores for verdict in verdicts if verdict.expected_scores)
        for values, sums in ((scores, self._scores), (expected, self._expected)):
            for index, value in values.items():
                sums[models[index]][0] += value
                sums[models[index]][1] += 1
        values = scores or expected
        for index, value in values.items() if len(values) > 1 else ():
            above = sum(other > value + 1e-9 for other in values.values())
            level = sum(abs(other - value) <= 1e-9 for other in values.values())
            self._ranks[models[index]][0] += above + (level + 1) / 2
            self._ranks[models[index]][1] += 1
            beaten = len(values) - above - level + (level - 1) / 2
            self._wins[models[index]]["score"][0] += beaten / (len(values) - 1)
            self._wins[models[index]]["score"][1] += 1

    def _add_choice(self, pair: tuple[str, str], name: str, choice: str) -> None:
        worse = self.rubric is not None and self.rubric.criterion(name).polarity == "worse"
        for model in pair:
            share = 0.5 if choice not in pair else float((choice == model) != worse)
            self._wins[model][name][0] += share
            self._wins[model][name][1] += 1

    def table(self) -> list[dict[str, str | float | int]]:
        """Return one row per model, best first: cases, mean score, mean expected score, mean rank, win share.

        A win share is the share of comparisons won, ties counting half; under a pairwise rubric there is one per criterion,
        a choice of a criterion where it names the worse response counting for the other.
        """
        rows = []
        for model in {*self._scores, *self._expected, *self._wins}:
            row: dict[str, str | float | int] = {"model": model}
            if model in self._scores or model in self._expected:
                row["cases"] = (self._scores if model in self._scores else self._expected)[model][1]
            for label, sums in (("score", self._scores), ("expected", self._expected), ("rank", self._ranks)):
                if model in sums:
                    row[label] = sums[model][0] / sums[model][1]
            wins = self._wins.get(model, {})
            if "score" in wins:
                row["win share"] = wins["score"][0] / wins["score"][1]
            elif wins:
                row["pairs"] = max(count for _, count in wins.values())
                row["win share"] = sum(total / count for total, count in wins.values()) / len(wins)
                row |= {name: total / count for name, (total, count) in wins.items()}
            rows.append(row)
        return sorted(
            rows, key=lambda row: [-row.get(name, 0.0) for name in ("win share", "expected", "score")] + [row["model"]]
        )


def _means(vectors: Iterable[tuple[float | None, ...]]) -> dict[int, float]:
    """Average vectors position by position over the values that are there; return index → mean."""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0])
    for vector in vectors:
        for index, value in enumerate(vector):
            if value is not None:
                sums[index][0] += value
                sums[index][1] += 1
    return {index: total / count for index, (total, count) in sorted(sums.items())}
