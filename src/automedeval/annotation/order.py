"""In which order a study's cases are given out: as the file has them, at random, or the least certain first."""

import itertools
import random
from collections.abc import Mapping, Sequence

from automedeval.records import Verdict

ORDERS = ("file", "random", "uncertainty")


def in_order(case_ids: Sequence[str], order: str, seed: int, verdicts: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """Return the ids of cases in the order in which they are given out.

    Args:
        order: one of ORDERS. "uncertainty" puts first the cases about whose order of responses the judges disagree most (see
            `disagreement`); among equals, and where only one judge spoke, those with the smallest gap between two scores of
            one judge (see `least_gap`). Cases of which neither is known come last. Equals stay as the file has them.
        seed: of a random order.
        verdicts: case id → the valid verdicts on it.
    """
    if order == "random":
        return random.Random(f"{seed}:order").sample(case_ids, len(case_ids))
    if order == "file":
        return list(case_ids)

    def certainty(case_id: str) -> tuple[bool, float, float]:
        scores = [known for verdict in verdicts.get(case_id, ()) if len(known := _scores(verdict)) > 1]
        return (not scores, -disagreement(scores), least_gap(scores)) if scores else (True, 0.0, 0.0)

    return sorted(case_ids, key=certainty)


def disagreement(scores: Sequence[Mapping[int, float]]) -> float:
    """Return how far judges disagree about the order of a case's responses, from 0 to 1.

    It is the mean over pairs of judges and pairs of responses that both scored: 0 where both order the pair alike, ½ where one
    of them ties, 1 where they order it the other way round. A single judge disagrees with nobody: 0.

    Args:
        scores: of each judge, index of the response → score.
    """
    apart = []
    for one, other in itertools.combinations(scores, 2):
        for first, second in itertools.combinations(sorted(one.keys() & other.keys()), 2):
            relations = [(score[first] > score[second]) - (score[first] < score[second]) for score in (one, other)]
            apart.append(abs(relations[0] - relations[1]) / 2)
    return sum(apart) / len(apart) if apart else 0.0


def least_gap(scores: Sequence[Mapping[int, float]]) -> float:
    """Return the smallest distance between two responses' scores by the same judge; needs a judge that scored two."""
    pairs = (pair for score in scores for pair in itertools.combinations(score.values(), 2))
    return min(abs(one - other) for one, other in pairs)


def _scores(verdict: Verdict) -> dict[int, float]:
    """Return index of the response → expected score, or the score itself of a judge that has no probabilities."""
    scores = verdict.expected_scores or verdict.scores or ()
    return {index: score for index, score in enumerate(scores) if score is not None}
