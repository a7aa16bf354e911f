"""Measure whether prediction-powered intervals keep what they promise, and what a judge saves.

    python benchmarks/prediction_powered.py
    python benchmarks/prediction_powered.py --draws 500 --unrated 300

Draws studies of few rated and many unrated cases whose true mean is known, and estimates it from the ratings alone, from a
judge alone and from both, by a good judge, a biased one and a useless one. A row is one kind of figure: a mean score or a win
rate. One verdict in twenty is invalid, more often where quality is high. Limits: the intervals of both hold the truth in 93.5
to 96.5 % of the draws, and are at most 1.02 times as wide as those of the ratings alone, whatever the judge.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rows import Results, arguments

from automedeval.stats.bootstrap import Estimate
from automedeval.stats.prediction_powered import prediction_powered

COVERAGE, WIDTH = (0.935, 0.965), 1.02
ALONE = {"classical": "ratings", "naive": "judge"}
INVALID = 0.05  # share of cases without a valid verdict, which are the harder ones


class Study(NamedTuple):
    """A study of some cases, of which some are rated."""

    people: np.ndarray  # NaN where nobody rated
    judge: np.ndarray  # NaN where the verdict is invalid
    bounds: tuple[float, float] | None
    truth: float  # the mean


def biased(rng: np.random.Generator, quality: np.ndarray) -> np.ndarray:
    """Return scores that are too low, too much alike, and kind to the response that comes first."""
    first = np.arange(quality.shape[-1]) == 0 if quality.ndim > 1 else 0.0
    return 2 + 0.5 * (quality + first) + rng.normal(0, 0.4, quality.shape)


JUDGES: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "good": lambda rng, quality: 3 + quality + rng.normal(0, 0.4, quality.shape),
    "biased": biased,
    "useless": lambda rng, quality: rng.normal(3, 1, quality.shape),
}


def scores_of(quality: np.ndarray) -> np.ndarray:
    """Return scores from 1 to 5 of qualities around 0; their mean is 3 by symmetry."""
    return np.clip(np.round(3 + quality), 1, 5)


def silent(rng: np.random.Generator, judge: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Return the verdicts with the invalid ones taken out; answers of high quality have twice as many."""
    return np.where(
        rng.random(len(judge)) < INVALID * np.where(quality > 0, 4 / 3, 2 / 3), np.nan, judge
    )


def mean_score(rng: np.random.Generator, see: Callable, rated: int, cases: int) -> Study:
    quality = rng.normal(size=cases)
    people = np.where(np.arange(cases) < rated, scores_of(quality), np.nan)
    return Study(people, silent(rng, see(rng, quality), quality), None, 3.0)


def win_rate(rng: np.random.Generator, see: Callable, rated: int, cases: int) -> Study:
    quality = rng.normal(size=(cases, 2))
    won = (1 + np.sign(scores_of(quality[:, 0]) - scores_of(quality[:, 1]))) / 2
    seen = see(rng, quality)
    judge = (seen[:, 0] > seen[:, 1]).astype(float)
    people = np.where(np.arange(cases) < rated, won, np.nan)
    return Study(people, silent(rng, judge, quality[:, 0]), (0.0, 1.0), 0.5)


STUDIES = {"mean score": mean_score, "win rate": win_rate}


def simulate(study: Callable, judge: str, rated: int, unrated: int, draws: int) -> dict[str, float]:
    """Return the coverage of the three intervals, the width of both against the classical one, and the worth."""
    rng = np.random.default_rng([0, *judge.encode(), *study.__name__.encode()])
    covered, widths, worth = np.zeros(3), np.zeros(2), np.zeros(draws)
    for at in range(draws):
        people, seen, bounds, truth = study(rng, JUDGES[judge], rated, rated + unrated)
        powered = prediction_powered(people, seen, bounds)
        intervals = (powered["classical"], powered["naive"], powered["prediction_powered"])
        covered += [interval.low <= truth <= interval.high for interval in intervals]
        widths += width_of(powered["classical"]), width_of(powered["prediction_powered"])
        worth[at] = powered["worth"]
    shares = dict(zip(("classical", "naive", "both"), (covered / draws).tolist()))
    return shares | {"width": float(widths[1] / widths[0]), "worth": float(np.median(worth))}


def width_of(estimate: Estimate) -> float:
    return estimate.high - estimate.low


def main() -> None:
    """Simulate everything, and print one table."""
    parser = arguments(__doc__)
    parser.add_argument("--rated", type=int, default=100)
    parser.add_argument("--unrated", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=10_000)
    args = parser.parse_args()
    results = Results("Prediction-powered intervals", args.json)
    for name, study in STUDIES.items():
        for judge in JUDGES:
            figures = simulate(study, judge, args.rated, args.unrated, args.draws)
            row = f"{name}, {judge} judge"
            results.add(
                f"{row}: coverage", figures["both"], "", least=COVERAGE[0], most=COVERAGE[1]
            )
            for kind in ("classical", "naive"):
                results.add(f"{row}: coverage, {ALONE[kind]} alone", figures[kind], "")
            results.add(
                f"{row}: width", figures["width"], "× that of the ratings alone", most=WIDTH
            )
            results.add(f"{row}: worth, median", figures["worth"], "rated cases without a judge")
    results.note(
        f"{args.draws:,} draws of {args.rated} rated and {args.unrated:,} unrated cases, 95 % intervals."
    )
    results.show()
    results.write()


if __name__ == "__main__":
    main()
