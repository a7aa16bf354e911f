"""Find teacher verdicts that fail the physicians' verification (paper section 3.1).

Physicians say of each verdict whether it meets (1) or fails (0) medical knowledge, attribution to the right doctor, and
fluency. It fails a criterion if one of them says so; the plan says how many failed criteria drop it.
"""

from collections import defaultdict
from collections.abc import Collection
from operator import attrgetter
from statistics import fmean

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


def verify(
    path: str, verdicts: Collection[Rated]
) -> tuple[dict[Rated, tuple[str, ...]], list[str]]:
    """Read physicians' ratings of the verdicts (verdict_ratings.jsonl), and tell which verdict fails which criteria.

    Return verdict → the criteria that it fails, none if it passes; and lines that report how many verdicts meet each criterion,
    with the paper's share, and how many ratings are of other verdicts: these are counted only. RecordError for a rating without
    a `verdict_digest`, a score that is not 0 or 1, or a second one by the same verifier.
    """
    lowest = defaultdict[str, dict[Rated, float]](dict)  # score of each criterion
    failures: dict[Rated, tuple[str, ...]] = {}
    others = 0
    placed = read_placed(path, VerdictRating)
    for place, rating in without_repeats(placed, attrgetter("judge", "verdict_digest")):
        with errors_at(place):
            if rating.verdict_digest is None:
                raise RecordError("'verdict_digest' is missing; it names the text that was rated")
            verdict = (rating.case_id, rating.judge, rating.verdict_digest)
            if verdict not in verdicts:
                others += 1
                continue
            if rating.score not in (0, 1):
                raise RecordError(f"'score' must be 0 (fails) or 1 (meets), not {rating.score}")
        failures[verdict] = ()
        scores = lowest[rating.criterion]
        scores[verdict] = min(rating.score, scores.get(verdict, 1))
    lines = []
    for criterion in sorted(lowest):
        scores = lowest[criterion]
        for verdict in scores:
            if scores[verdict] == 0:
                failures[verdict] += (criterion,)
        met = f"{sum(scores.values()):,.0f} of {len(scores):,} verdicts meet it"
        share = f"{100 * fmean(scores.values()):.2f} %"
        paper = f"; paper: {PAPER_SHARES[criterion]} %" if criterion in PAPER_SHARES else ""
        lines.append(f"{criterion}: {met} ({share}{paper})")
    if others:
        lines.append(
            f"{others:,} ratings are of other verdicts, or of other texts of these: not applied"
        )
    return failures, lines
