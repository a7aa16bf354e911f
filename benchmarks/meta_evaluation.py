"""Measure what the statistics and the report of a large study cost, against limits and against the loop they replace.

    python benchmarks/meta_evaluation.py
    python benchmarks/meta_evaluation.py --cases 1000 --resamples 1000

Synthetic cases of three responses, a judge and three raters. Timed in this process: the bootstrap of the mean measures and
of the rank correlations; in a process of its own: the whole report by `automedeval report`. The peer is the bootstrap
as it is usually written: draw cases, gather their responses, compute the measure again, in a loop over resamples.
"""

import resource
import tempfile
from pathlib import Path

import numpy as np
from processes import peak, recipe, timed
from rows import Results, arguments
from scipy.stats import spearmanr
from synthetic import write_study

from automedeval.stats import agreement, bootstrap
from automedeval.stats.agreement import Panel

LOOPED = 20  # resamples of the usual loop that are timed, with one accuracy and one correlation


def synthetic(cases: int) -> tuple[Panel, np.ndarray, np.ndarray]:
    """Return a panel of cases of three responses, people's scores and a judge's expected scores."""
    rng = np.random.default_rng(0)
    quality = rng.normal(size=3 * cases)
    people = np.clip(np.round(3 + quality + rng.normal(0, 0.5, (3, 3 * cases))), 1, 5).mean(axis=0)
    return Panel.of_sizes([3] * cases), people, 3 + quality + rng.normal(size=3 * cases)


def looped(
    panel: Panel, people: np.ndarray, judge: np.ndarray, rank: bool, resamples: int
) -> float:
    """Return the seconds a resample takes the usual way."""
    rng = np.random.default_rng(1)

    def resample() -> None:
        drawn = rng.integers(0, panel.cases, panel.cases)
        rows = (3 * drawn[:, None] + np.arange(3)).ravel()
        x, y = people[rows], judge[rows]
        if rank:
            spearmanr(x, y)
        else:
            for first, second in ((0, 1), (0, 2), (1, 2)):
                gaps = [np.sign(side[first::3] - side[second::3]) for side in (x, y)]
                np.mean(gaps[0] == gaps[1])
            np.corrcoef(x, y)

    return timed(lambda: [resample() for _ in range(resamples)])[0] / resamples


def main() -> None:
    """Time everything once and print one table."""
    parser = arguments(__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    args = parser.parse_args()
    results = Results("Statistics and report", args.json)
    panel, people, judge = synthetic(args.cases)
    relation, judged = panel.relations(people), panel.relations(judge)
    means = agreement.accuracies(panel, relation, judged) | agreement.correlations(
        panel, people, judge
    )
    ranks = {"spearman": means.pop("spearman")}
    for name, statistics, limit in (
        ("mean measures", means, 10.0),
        ("rank correlation", ranks, 60.0),
    ):
        drawn = [*statistics.values()]
        seconds, _ = timed(
            lambda drawn=drawn: bootstrap.bootstrap(drawn, args.cases, args.resamples)
        )
        peer = looped(panel, people, judge, name != "mean measures", LOOPED) * args.resamples
        name = f"bootstrap of {len(statistics)} {name}"
        results.add(name, seconds, "s", most=limit)
        results.add(name, seconds, "s", "the usual loop over resamples", peer / seconds)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_study(folder, args.cases, 3, [(0, 1, 2)])
        files = {name: folder / f"{name}.jsonl" for name in ("verdicts", "cases", "ratings")}
        # an encoder's time is its own: benchmarks/knowledge.py measures it
        command = recipe("report", **files, encoder="none", output=folder / "out")
        seconds, whole = timed(lambda: peak(command, folder / "log"))
        size = (folder / "out/report.html").stat().st_size / 1e6
    results.add("the whole report", seconds, "s", most=60)
    results.add("peak memory of the bootstraps", memory, "GB", most=1)
    results.add("peak memory of the report", whole / 1e3, "GB")
    results.add("size of the report's HTML", size, "MB", most=15)
    results.note(
        f"{args.cases:,} cases of three responses, {args.resamples:,} resamples; the report's default of them."
    )
    results.show()
    results.write()


if __name__ == "__main__":
    main()
