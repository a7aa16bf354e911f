"""Check by simulation what `recipes/abstain.py` promises: how often the true risk among the kept is above the allowed one.

    python benchmarks/abstention.py
    python benchmarks/abstention.py --draws 1000 --cases 300 --risk 0.2

Every draw makes rated cases of two to four responses and fresh ones, whose pairs are wrong by a law that is known: so the true
risk at any threshold is known too. Pairs of a case are mostly right or wrong together. The rows are laws: a judge that knows
when it is right; one that guesses; one whose risk is a hair above the allowed one everywhere, so that every certificate of it
is false; one whose surest verdicts are the worst; one that is right up to a point and guesses beyond it. Each has what is
promised, and two ways that look like it: counting all pairs as if they were independent, and keeping all that is seen to
have the allowed share of errors. The exit status is 0 whether the promise is kept or not.
"""

import argparse
from collections.abc import Callable

import numpy as np
from rows import Results, add_json
from scipy.special import bdtr

from automedeval.stats import selective

FRESH = 400
TOGETHER = 0.8  # the share of cases whose pairs are all right or all wrong
GRID = 100_000
DELTA = 0.1  # how often a promise may be false
WAYS = ("", ", all pairs as if independent", ", as seen")  # what is promised, and two ways that look like it
LIMITS = (DELTA, None, None)

Law = Callable[[np.ndarray], np.ndarray]


def laws(risk: float) -> dict[str, Law]:
    """Return name → the probability that a pair is wrong, over the share of verdicts that are surer (0 the surest)."""
    return {
        "knows when it is right": lambda at: 0.02 + 0.33 * at**1.5,
        "guesses": lambda at: np.full_like(at, 0.5),
        "a hair too bad": lambda at: np.full_like(at, risk + 1e-4),
        "wrong where sure": lambda at: np.where(at < 0.15, 0.4, 0.03),
        "right up to a point": lambda at: np.where(at < 0.4, 0.3 * risk, 0.5),
    }


def true_risks(law: Law) -> np.ndarray:
    """Return the risk of keeping the surest 1/GRID, 2/GRID, … of all verdicts."""
    return np.cumsum(law((np.arange(GRID) + 0.5) / GRID)) / np.arange(1, GRID + 1)


def draw(law: Law, cases: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return confidence [cases], whether pairs are wrong and whether they are there [cases, 6], and fresh confidences."""
    at = rng.random(cases)
    wrong = rng.random((cases, 6)) < law(at)[:, None]
    together = rng.random(cases) < TOGETHER
    wrong[together] = wrong[together, :1]
    there = np.arange(6) < rng.choice([1, 3, 6], cases)[:, None]
    return 1 - at, wrong, there, rng.random(FRESH)


def choices(law: Law, cases: int, risk: float, rng: np.random.Generator) -> list[float | None]:
    """Return the thresholds that the promise, and the two that look like it, choose in one draw; None keeps nothing."""
    confidence, wrong, there, fresh = draw(law, cases, rng)
    sequence = selective.thresholds(fresh, cases, risk, DELTA)
    drawn = (rng.random(cases) * there.sum(axis=1)).astype(int)
    promised = selective.certify(confidence, wrong[np.arange(cases), drawn], sequence, risk, DELTA)["threshold"]
    case, _ = np.nonzero(there)
    pooled = selective.certify(confidence[case], wrong[there], sequence, risk, DELTA)["threshold"]
    seen = [level for level in sequence if wrong[there & (confidence >= level)[:, None]].mean() <= risk]
    return [promised, pooled, min(seen) if seen else None]


def main() -> None:
    """Draw, choose, look up the true risks, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--cases", type=int, default=200, help="rated ones")
    parser.add_argument("--risk", type=float, default=0.1)
    add_json(parser)
    args = parser.parse_args()
    results = Results("Certified abstention", args.json)
    for name, law in laws(args.risk).items():
        rng, risks = np.random.default_rng(0), true_risks(law)
        broken, kept = np.zeros((2, len(WAYS)))
        for _ in range(args.draws):
            for way, threshold in enumerate(choices(law, args.cases, args.risk, rng)):
                if threshold is not None:
                    place = min(GRID, max(1, round((1 - threshold) * GRID)))
                    broken[way] += risks[place - 1] > args.risk
                    kept[way] += place / GRID
        # How likely so many false promises are, if one in 1/DELTA is the truth.
        noise = 1 - bdtr(broken[0] - 1, args.draws, DELTA) if broken[0] else 1.0
        for way, about in enumerate(WAYS):
            promises = results.add(
                f"{name}: false promises{about}", broken[way] / args.draws, "of the draws", most=LIMITS[way]
            )
            if not way:
                promises["met"] = bool(noise > 1e-3)
            results.add(f"{name}: kept{about}", kept[way] / args.draws, "of the verdicts")
    results.note(f"{args.draws:,} draws of {args.cases} rated and {FRESH} fresh cases, at most {args.risk:g} wrong.")
    results.note("A share that is above the limit by chance (p > 0.001) meets it.")
    results.show()
    results.write()


if __name__ == "__main__":
    main()
