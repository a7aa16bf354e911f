"""Find teacher verdicts that fail the physicians' verification (paper section 3.1).

Physicians say of each verdict whether it meets (1) or fails (0) medical knowledge, attribution to the right doctor, and
fluency. It fails a criterion if one of them says so; the plan says how many failed criteria drop it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from automedeval.records import (
    RecordError,
    VerdictRating,
    errors_at,
    read_placed,
    without_repeats,
)

# The paper's shares of verdicts that meet each criterion, in percent (section 3.1); shown beside a data set's own.
PAPER_SHARES = {"knowledge": 94.06, "attribution": 90.71, "fluency": 94.04}
Rated = tuple[str, str, str]  # case id, judge, digest of the verdict


@dataclass
class Verification:
    """The result of `verify`.

    `failures` maps (case id, judge, digest of the verdict) to the criteria that the verdict fails; the tuple is empty if it
    passes. `criteria` maps a criterion to {"met": verdicts, "rated": verdicts, "paper_percent"}. `others` counts ratings whose
    digest is none of the judge's verdicts on the case; they are not applied.
    """

    failures: dict[Rated, tuple[str, ...]]
    criteria: dict[str, dict[str, Any]]
    others: int

    def lines(self) -> list[str]:
        """Return a line for each criterion, with the paper's share, and one for the ratings that are not applied."""
        lines = []
        for name, counts in self.criteria.items():
            met, rated, paper = counts.values()
            beside = "" if paper is None else f"; paper: {paper:.2f} %"
            lines.append(
                f"{name}: {met:,} of {rated:,} verdicts meet it ({100 * met / rated:.2f} %{beside})"
            )
        if self.others:
            lines.append(
                f"{self.others:,} ratings are of other verdicts, or of other texts of these: not applied"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {"criteria": self.criteria, "others": self.others}


def verify(path: str, verdicts: Mapping[tuple[str, str], Collection[str]]) -> Verification:
    """Read physicians' ratings of the verdicts (verdict_ratings.jsonl), and tell which verdict fails which criteria.

    `verdicts` maps (case id, judge) to the digests of the verdicts to verify; ratings of others are counted only. RecordError
    for a rating without a `verdict_digest`, a score that is not 0 or 1, or a second one by the same verifier.
    """
    scores: dict[Rated, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    others = 0
    placed = read_placed(path, VerdictRating)
    for place, rating in without_repeats(placed, attrgetter("judge", "verdict_digest")):
        with errors_at(place):
            if rating.verdict_digest is None:
                raise RecordError("'verdict_digest' is missing; it names the text that was rated")
            if rating.verdict_digest not in verdicts.get((rating.case_id, rating.judge), ()):
                others += 1
                continue
            if rating.score not in (0, 1):
                raise RecordError(f"'score' must be 0 (fails) or 1 (meets), not {rating.score}")
        key = (rating.case_id, rating.judge, rating.verdict_digest)
        scores[key][rating.criterion].append(rating.score)
    failures = {
        key: tuple(sorted(name for name, given in by_criterion.items() if 0 in given))
        for key, by_criterion in scores.items()
    }
    rated = Counter(chain.from_iterable(scores.values()))
    met = rated - Counter(chain.from_iterable(failures.values()))
    # The paper's criteria first, in its order.
    of_paper = [name for name in PAPER_SHARES if name in rated]
    names = [*of_paper, *sorted(rated.keys() - PAPER_SHARES.keys())]
    criteria = {
        name: {"met": met[name], "rated": rated[name], "paper_percent": PAPER_SHARES.get(name)}
        for name in names
    }
    return Verification(failures, criteria, others)
