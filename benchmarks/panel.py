"""Simulate panels: how often `automedeval panel check` says that a judge is the same, worse, or that it cannot be told.

    python benchmarks/panel.py
    python benchmarks/panel.py --panels 2000 --cases 60 --by 0.05

A case has three answers; three people and the judge see their quality with errors. Today's judge repeats a part of the errors
of the frozen one, as a sampled or a served model does; of a judge that was made worse, the scores of a share of the cases are
guesses, so that its agreement is lower by the loss that a row names. The words are those of `automedeval.stats.gate`, at the
margin --by. A loss of the margin itself is the border: there each of the two words is wrong.
"""

import argparse

import numpy as np
from rows import Results, add_json

from automedeval.panel.comparison import RESULTS
from automedeval.stats.agreement import Panel, concordance
from automedeval.stats.bootstrap import divide
from automedeval.stats.gate import LOWER, NOT_LOWER, UNDECIDED, gate

ANSWERS, PEOPLE = 3, 3
ERROR = {"people": 0.7, "judge": 0.5}  # standard deviations; that of the quality is 1
REPEATED = 0.8  # correlation of the errors of today's and the frozen judge
WRONG = 0.05


def scores(cases: int, guessed: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return people's mean scores, the frozen judge's and today's, float [cases × ANSWERS]; a share of the cases is guessed."""
    quality = rng.normal(size=(cases, ANSWERS))
    people = np.round(quality[..., None] + rng.normal(0, ERROR["people"], (cases, ANSWERS, PEOPLE))).mean(axis=2)
    errors, fresh = rng.normal(0, ERROR["judge"], (2, cases, ANSWERS))
    today = quality + REPEATED * errors + np.sqrt(1 - REPEATED**2) * fresh
    guesses = rng.random(cases) < guessed
    today[guesses] = rng.normal(size=(guesses.sum(), ANSWERS))
    return people.ravel(), (quality + errors).ravel(), today.ravel()


def differences(cases: int, guessed: float, rng: np.random.Generator) -> np.ndarray:
    """Return by how much today's agreement with people differs from the frozen one: float [cases], NaN without an order."""
    people, *judges = scores(cases, guessed, rng)
    panel = Panel.of_sizes([ANSWERS] * cases)
    relations = [panel.relations(each) for each in (people, *judges)]
    old, new = (divide(*concordance(panel, relations[0], each).columns.T) for each in relations[1:])
    return new - old


def main() -> None:
    """Draw panels, decide each, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--panels", type=int, default=200)
    parser.add_argument("--cases", type=int, nargs="+", default=[30, 60, 150, 300], help="rated ones")
    parser.add_argument("--by", type=float, default=0.1)
    add_json(parser)
    args = parser.parse_args()
    results = Results("Checks of a frozen panel", args.json)
    lost = -float(np.nanmean(differences(100_000, 1.0, np.random.default_rng(1))))  # by a judge that guesses everywhere
    for cases in args.cases:
        for loss in (0.0, args.by, 2 * args.by, 3 * args.by):
            rng, words = np.random.default_rng([cases, round(1000 * loss)]), []
            for _ in range(args.panels):
                drawn = differences(cases, loss / lost, rng)
                words.append(gate(drawn[~np.isnan(drawn)], args.by, 1.0).status)
            for word in (NOT_LOWER, LOWER, UNDECIDED):
                wrong = (word == LOWER and loss <= args.by) or (word == NOT_LOWER and loss >= args.by)
                share = float(np.mean(np.array(words) == word))
                results.add(
                    f"{cases} cases, loss {loss:g}: {RESULTS[word]}", share, "of panels", most=WRONG if wrong else None
                )
    results.note(
        f"{args.panels:,} panels in each row; margin {args.by:g}; a judge that guesses everywhere loses {lost:.3f}."
    )
    results.show()
    results.write()


if __name__ == "__main__":
    main()
