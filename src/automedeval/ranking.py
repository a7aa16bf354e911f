"""Which candidate is better: means, ranks, win shares and Bradley–Terry strengths per model.

`Standings` sums verdicts up as they come, for the table that ends a run; the functions below it work on arrays of relations
(see `agreement.Panel`) and give what the report needs for intervals.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations

import numpy as np
from scipy.sparse.csgraph import connected_components

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


def format_table(rows: list[dict[str, str | float | int]], most: int = 20) -> str:
    """Lay rows out as a plain text table, the first `most` of them."""
    if not rows:
        return "no valid verdict"
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names] + [
        [f"{row[name]:.2f}" if isinstance(row.get(name), float) else str(row.get(name, "–")) for name in names]
        for row in rows[:most]
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        )
        for line in cells
    ]
    if len(rows) > most:
        lines.append(f"… and {len(rows) - most} more")
    return "\n".join(line.rstrip() for line in lines)


def count_wins(
    first: np.ndarray, second: np.ndarray, relation: np.ndarray, case: np.ndarray, cases: int, models: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count (wins, ties) per case: float [cases, models, models], entry (i, j) for i over j, and for ties of i with j.

    Args:
        first, second: the models of each pair, as numbers.
        relation: -1, 0, 1 as the first is worse, level or better; NaN where there is none.
        case: the case of each pair.
    """
    wins, ties = np.zeros((2, cases, models, models))
    np.add.at(wins, (case, first, second), (relation == 1).astype(float))
    np.add.at(wins, (case, second, first), (relation == -1).astype(float))
    for one, other in ((first, second), (second, first)):
        np.add.at(ties, (case, one, other), (relation == 0).astype(float))
    return wins, ties


def unconnected(compared: np.ndarray, models: list[str]) -> str | None:
    """Return why models cannot be ranked against each other, None if comparisons [models, models] connect them all."""
    parts, part = connected_components(compared > 0, directed=False)
    if parts == 1:
        return None
    sizes = np.bincount(part)
    apart = [name for name, own in zip(models, part) if own != np.argmax(sizes)]
    shown = ", ".join(apart[:3]) + (f" and {len(apart) - 3} more" if len(apart) > 3 else "")
    return f"the {len(models)} models fall into {parts} groups that were never compared with each other ({shown} apart)"


def bradley_terry(wins: np.ndarray, steps: int = 2000, tolerance: float = 1e-8) -> np.ndarray:
    """Return log strengths [..., models] of wins [..., models, models], ties counted as half a win for each, mean 0.

    Maximum likelihood by Hunter's (2004) minorisation. A model that never won, or never lost, has no finite strength: see
    `unbeaten`; here it stands far out.
    """
    played = wins + np.swapaxes(wins, -1, -2)
    won = np.maximum(wins.sum(-1), 1e-12)
    strengths = np.ones(wins.shape[:-1])
    for _ in range(steps):
        denominators = (played / (strengths[..., :, None] + strengths[..., None, :])).sum(-1)
        updated = won / np.maximum(denominators, 1e-12)
        updated = np.maximum(updated / np.exp(np.log(updated).mean(-1, keepdims=True)), 1e-12)
        moved = np.abs(np.log(updated / strengths)).max(initial=0.0)
        strengths = updated
        if moved < tolerance:
            break
    logs = np.log(strengths)
    return logs - logs.mean(-1, keepdims=True)


def unbeaten(wins: np.ndarray, models: list[str]) -> str | None:
    """Return why Bradley–Terry strengths are not finite, None if they are."""
    parts, part = connected_components(wins > 0, directed=True, connection="strong")
    if parts == 1:
        return None
    names = [[name for name, own in zip(models, part) if own == number] for number in range(parts)]
    return (
        "no finite strengths: some models won, or lost, every comparison with the others ("
        + " | ".join(", ".join(group) for group in names)
        + ")"
    )


def misfit(wins: np.ndarray, strengths: np.ndarray, models: list[str]) -> dict[str, object]:
    """Tell how far the win shares are from what Bradley–Terry strengths predict, and which triples go round in a circle.

    Returns:
        {"root_mean_square", "largest": {"pair", "observed", "predicted"}, "circles": [[a, b, c], …]} with a over b over c
        over a by majority.
    """
    played = wins + wins.T
    pairs = [(i, j) for i, j in combinations(range(len(models)), 2) if played[i, j]]
    observed = np.array([wins[i, j] / played[i, j] for i, j in pairs])
    predicted = np.array([1 / (1 + np.exp(strengths[j] - strengths[i])) for i, j in pairs])
    gaps = observed - predicted
    worst = int(np.argmax(np.abs(gaps)))
    i, j = pairs[worst]
    beats = wins > wins.T
    circles = []
    for a, b, c in combinations(range(len(models)), 3):
        for x, y, z in ((a, b, c), (a, c, b)):
            if beats[x, y] and beats[y, z] and beats[z, x]:
                circles.append([models[x], models[y], models[z]])
    return {
        "root_mean_square": float(np.sqrt((gaps**2).mean())),
        "largest": {
            "pair": [models[i], models[j]],
            "observed": float(observed[worst]),
            "predicted": float(predicted[worst]),
        },
        "circles": circles,
    }
