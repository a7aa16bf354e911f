"""Find teacher verdicts that fail the physicians' verification (paper section 3.1).

Physicians rate each verdict on medical knowledge, attribution to the right doctor, and fluency. A rule decides by these ratings
whether the verdict fails a criterion, and how many failed criteria make the case unfit.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from automedeval.records import RecordError, VerdictRating, read_placed
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import TAGS

# The paper's shares of verdicts that meet each criterion, in percent (section 3.1); shown beside a data set's own.
PAPER_SHARES = {"knowledge": 94.06, "attribution": 90.71, "fluency": 94.04}
Rated = tuple[str, str, str]  # case id, judge, digest of the verdict


@dataclass(frozen=True)
class Rule:
    """Decide from one criterion's scores of one verdict whether the verdict fails it, and how many failures drop it.

    `scale` is (lowest, highest). The verdict fails if "any" verifier's score is below `fail_below`, if the scores of the
    "majority" (more than half) are, or if the "mean" score is, as `fails` says. A verdict that fails `failed_criteria` or more
    is dropped.
    """

    # Paper: 94.06, 90.71 and 94.04 % meet the criteria, but only 305 of 9,874 cases were dropped. It states no rule and no
    # joint distribution; one failed criterion would drop 9.29 % or more. The default is the strictest rule.
    scale: tuple[int, int] = (0, 1)
    fail_below: float = 1
    fails: str = "any"
    failed_criteria: int = 1

    @classmethod
    def read(cls, file: YamlFile, content: Any) -> "Rule":
        """Read the section `verification` of a plan; errors name the file and the key."""
        inside = "verification."
        file.only(content, ("scale", "fail_below", "fails", "failed_criteria"), inside)
        scale = content.get("scale", [0, 1])
        if scale not in ([0, 1], [1, 5]):
            file.fail(f"{inside}scale", f"must be [0, 1] or [1, 5], not {scale!r}")
        low, high = scale
        least = content.get("fail_below", 1 if high == 1 else 3)
        if type(least) not in (int, float) or not low < least <= high:
            file.fail(f"{inside}fail_below", f"must be a number above {low} and at most {high}, not {least!r}")
        fails = file.take(content, "fails", str, "any", ("any", "majority", "mean"), inside=inside)
        return cls((low, high), least, fails, file.take(content, "failed_criteria", int, 1, inside=inside, least=1))

    def failed(self, scores: list[float]) -> bool:
        """Return whether a verdict with these scores, one per verifier, fails the criterion."""
        if self.fails == "mean":
            return sum(scores) / len(scores) < self.fail_below
        noes = sum(score < self.fail_below for score in scores)
        return noes > 0 if self.fails == "any" else 2 * noes > len(scores)


@dataclass
class Verification:
    """The result of `verify`.

    `failures` maps (case id, judge, digest of the verdict) to the criteria that the verdict fails; the tuple is empty if it
    passes. `criteria` maps a criterion to {"met": verdicts, "rated": verdicts, "paper_percent"}, `tags` counts ratings by tag.
    `elsewhere` counts ratings of cases or judges without a verdict, `other_texts` those whose digest none of the judge's
    verdicts on the case has. Neither is applied.
    """

    failures: dict[Rated, tuple[str, ...]]
    criteria: dict[str, dict[str, Any]]
    tags: dict[str, int]
    elsewhere: int
    other_texts: int

    def lines(self) -> list[str]:
        """Return a line for each criterion, with the paper's share, one for the tags, and one for each count."""
        lines = []
        for name, (met, rated, paper) in ((name, counts.values()) for name, counts in self.criteria.items()):
            beside = "" if paper is None else f"; paper: {paper:.2f} %"
            lines.append(f"{name}: {met:,} of {rated:,} verdicts meet it ({100 * met / rated:.2f} %{beside})")
        if self.tags:
            lines.append("tags: " + ", ".join(f"{name} {count:,}" for name, count in self.tags.items()))
        if self.elsewhere:
            lines.append(f"{self.elsewhere:,} ratings are of verdicts that are not among these")
        if self.other_texts:
            lines.append(f"{self.other_texts:,} ratings are of other texts of these judges on these cases: not applied")
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("criteria", "tags", "elsewhere", "other_texts")}


def verify(path: str, verdicts: Mapping[tuple[str, str], Collection[str]], rule: Rule) -> Verification:
    """Read physicians' ratings of the verdicts (verdict_ratings.jsonl) and apply the rule to each verdict and criterion.

    Args:
        verdicts: (case id, judge) → the digests of the verdicts to verify; ratings of others are counted only.

    Raises:
        RecordError: a rating without a `verdict_digest`, a score off the rule's scale, an unknown tag, or a second rating of a
            verdict by the same verifier on the same criterion.
    """
    scores: dict[Rated, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    tags: Counter[str] = Counter()
    elsewhere, other_texts, (low, high) = 0, 0, rule.scale
    for place, rating in read_placed(path, VerdictRating):
        ticked = rating.extra.get("tags") or []
        if not isinstance(ticked, list) or any(tag not in TAGS for tag in ticked):
            raise RecordError(f"{place}: 'tags' must be a list of {', '.join(TAGS)}, not {ticked!r}")
        if rating.verdict_digest is None:
            raise RecordError(f"{place}: 'verdict_digest' is missing; it names the text that was rated")
        digests = verdicts.get((rating.case_id, rating.judge), ())
        if rating.verdict_digest not in digests:
            elsewhere, other_texts = elsewhere + (not digests), other_texts + bool(digests)
            continue
        if rating.score not in range(low, high + 1):
            scale = f"{low} to {high} (the plan's verification.scale)"
            raise RecordError(f"{place}: 'score' must be a whole number from {scale}, not {rating.score}")
        by_verifier = scores[rating.case_id, rating.judge, rating.verdict_digest][rating.criterion]
        if rating.annotator in by_verifier:
            raise RecordError(
                f"{place}: {rating.annotator!r} rated the verdict of {rating.judge!r} on case {rating.case_id!r} "
                f"on {rating.criterion!r} before"
            )
        by_verifier[rating.annotator] = rating.score
        tags.update(ticked)
    failures = {}
    for key, by_criterion in scores.items():
        failures[key] = tuple(sorted(name for name, each in by_criterion.items() if rule.failed(list(each.values()))))
    rated = Counter(name for by_criterion in scores.values() for name in by_criterion)
    met = rated - Counter(name for names in failures.values() for name in names)
    # The paper's criteria first, in its order.
    names = [*(name for name in PAPER_SHARES if name in rated), *sorted(set(rated) - set(PAPER_SHARES))]
    criteria = {
        name: {"met": met[name], "rated": rated[name], "paper_percent": PAPER_SHARES.get(name)} for name in names
    }
    return Verification(failures, criteria, dict(sorted(tags.items())), elsewhere, other_texts)
