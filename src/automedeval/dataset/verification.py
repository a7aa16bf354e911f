"""Reliability verification: what physicians said about the teachers' verdicts, and which of them fail (paper section 3.1).

Physicians rate each verdict on criteria: is its medical knowledge right, is nothing credited to the wrong doctor, does it read
well. A rule says which ratings make a verdict fail; whatever fails one criterion is no training data.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from automedeval.records import RecordError, VerdictRating, read_lines
from automedeval.rubrics import TAGS

# The paper's shares of verdicts that meet each criterion, in percent (section 3.1); shown beside a data set's own.
PAPER_SHARES = {"knowledge": 94.06, "attribution": 90.71, "fluency": 94.04}


@dataclass(frozen=True)
class Rule:
    """Decide from one criterion's scores of one verdict whether the verdict fails it.

    `scale` is (lowest, highest); a score below `fail_below` is a verifier's no. `fails` says how many of them it takes: "any"
    verifier's no, that of the "majority" (more than half), or a "mean" score below `fail_below`.
    """

    # Paper: 94.06, 90.71 and 94.04 % meet the criteria, and yet only 305 of 9,874 cases were dropped; no one rule gives both.
    # The strictest one stands here: any verifier's no, on any criterion.
    scale: tuple[int, int] = (0, 1)
    fail_below: float = 1
    fails: str = "any"

    @classmethod
    def from_dict(cls, content: Any, place: str) -> "Rule":
        """Read a plan's section `verification`; faults are RecordErrors that begin with `place`."""
        if not isinstance(content, dict):
            raise RecordError(f"{place}: must be a mapping with the keys scale, fail_below and fails")
        unknown = sorted(set(map(str, content)) - {"scale", "fail_below", "fails"})
        if unknown:
            raise RecordError(f"{place}: unknown key {unknown[0]!r}; known are scale, fail_below and fails")
        scale = content.get("scale", [0, 1])
        if scale not in ([0, 1], [1, 5]):
            raise RecordError(f"{place}: scale: must be [0, 1] or [1, 5], not {scale!r}")
        threshold = content.get("fail_below", 1 if scale == [0, 1] else 3)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise RecordError(f"{place}: fail_below: must be a number, not {threshold!r}")
        if not scale[0] < threshold <= scale[1]:
            raise RecordError(f"{place}: fail_below: {threshold} divides nothing on the scale {scale[0]} to {scale[1]}")
        fails = content.get("fails", "any")
        if fails not in ("any", "majority", "mean"):
            raise RecordError(f"{place}: fails: must be any, majority or mean, not {fails!r}")
        return cls(tuple(scale), threshold, fails)

    def failed(self, scores: list[float]) -> bool:
        """Return whether a verdict with these scores, one a verifier, fails the criterion."""
        if self.fails == "mean":
            return sum(scores) / len(scores) < self.fail_below
        noes = sum(score < self.fail_below for score in scores)
        return noes > 0 if self.fails == "any" else 2 * noes > len(scores)


@dataclass
class Verification:
    """What the ratings say: (case id, judge) → the criteria that the verdict fails, none if it passes; and the counts.

    `met` and `rated` count verdicts by criterion, `tags` ratings by tag, `elsewhere` ratings of verdicts that are not ours.
    """

    failures: dict[tuple[str, str], tuple[str, ...]]
    met: dict[str, int]
    rated: dict[str, int]
    tags: Counter
    elsewhere: int = 0

    def lines(self) -> list[str]:
        """Return one line a criterion, with the paper's share beside it, and one of tags."""
        found = []
        for name, rated in self.rated.items():
            share = f"{name}: {self.met[name]:,} of {rated:,} verdicts meet it ({100 * self.met[name] / rated:.2f} %"
            found.append(share + (f"; paper: {PAPER_SHARES[name]:.2f} %)" if name in PAPER_SHARES else ")"))
        if self.tags:
            found.append("tags: " + ", ".join(f"{name} {count:,}" for name, count in sorted(self.tags.items())))
        if self.elsewhere:
            found.append(f"{self.elsewhere:,} ratings are of verdicts that are not among these")
        return found

    def to_dict(self) -> dict[str, Any]:
        criteria = {
            name: {"met": self.met[name], "rated": rated, "paper_percent": PAPER_SHARES.get(name)}
            for name, rated in self.rated.items()
        }
        return {"criteria": criteria, "tags": dict(sorted(self.tags.items())), "elsewhere": self.elsewhere}


def verify(path: str, verdicts: Container[tuple[str, str]], rule: Rule) -> Verification:
    """Read physicians' ratings of the verdicts and apply the rule to each verdict and criterion.

    Args:
        path: verdict_ratings.jsonl.
        verdicts: (case id, judge) of the verdicts that are asked about.
        rule: what fails.

    Raises:
        RecordError: a score off the rule's scale, a tag that is none, or a second rating of the same by the same verifier.
    """
    scores: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    tags, elsewhere, seen = Counter(), 0, set()
    for place, rating, given_tags in _ratings(path):
        key = (rating.case_id, rating.judge)
        if key not in verdicts:
            elsewhere += 1
            continue
        if (again := (*key, rating.annotator, rating.criterion)) in seen:
            raise RecordError(
                f"{place}: {rating.annotator!r} rated the verdict of {rating.judge!r} on case {rating.case_id!r} "
                f"on {rating.criterion!r} before"
            )
        seen.add(again)
        low, high = rule.scale
        if rating.score not in range(low, high + 1):
            raise RecordError(
                f"{place}: 'score' must be a whole number from {low} to {high}, not {rating.score} "
                "(the plan's verification.scale names another scale)"
            )
        scores[key][rating.criterion].append(rating.score)
        tags.update(given_tags)
    met: Counter = Counter()
    rated: Counter = Counter()
    failures = {}
    for key, by_criterion in scores.items():
        failed = tuple(sorted(name for name, values in by_criterion.items() if rule.failed(values)))
        failures[key] = failed
        rated.update(list(by_criterion))
        met.update(set(by_criterion) - set(failed))
    # The paper's criteria first, in its order.
    names = [*(name for name in PAPER_SHARES if name in rated), *sorted(set(rated) - set(PAPER_SHARES))]
    return Verification(
        failures, {name: met[name] for name in names}, {name: rated[name] for name in names}, tags, elsewhere
    )


def _ratings(path: str) -> Iterator[tuple[str, VerdictRating, list[str]]]:
    """Yield (place, rating, tags); VerdictRating itself knows no tags."""
    for place, record in read_lines(path):
        try:
            rating = VerdictRating.from_dict(record)
        except RecordError as error:
            raise RecordError(f"{place}: {error}") from None
        tags = record.get("tags") or []
        if not isinstance(tags, list) or any(tag not in TAGS for tag in tags):
            raise RecordError(f"{place}: 'tags' must be a list of {', '.join(TAGS)}, not {tags!r}")
        yield place, rating, tags
