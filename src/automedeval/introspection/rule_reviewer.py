"""Review suggestions by a rule on people's ratings, for runs without a second model, such as the demo.

The rule reads no text. It accepts scores that order every pair of responses as the mean ratings do; pairs with equal mean
ratings do not count. A tie between two responses with different ratings is not accepted.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from automedeval.models.base import Answer, Prompt, SequentialChat
from automedeval.records import Case, Rating, RecordError, digest, read_records
from automedeval.stats.agreement import SAME


@dataclass
class RuleOnRatings(SequentialChat):
    """A chat that reviews suggestions by ratings.

    Args:
        path: ratings of the responses; a response has the mean over annotators of their means over criteria.

    Raises:
        RecordError: the file cannot be read, or is empty.
    """

    path: str | Path
    name: str = field(default="rule on ratings", init=False)

    def __post_init__(self) -> None:
        scores: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for rating in read_records(self.path, Rating):
            scores[rating.case_id, rating.model][rating.annotator].append(rating.score)
        if not scores:
            raise RecordError(f"{self.path}: the file is empty")
        self._means = {key: fmean(map(fmean, by_annotator.values())) for key, by_annotator in scores.items()}
        self._fingerprint = digest(sorted((*key, mean) for key, mean in self._means.items()))

    def check(self, cases: Iterable[Case]) -> None:
        """Raise RecordError if a response of one of these cases has no rating."""
        for case in cases:
            for model in case.models:
                if (case.id, model) not in self._means:
                    raise RecordError(f"{self.path}: no rating of {model!r} in case {case.id!r}")

    def reply(self, prompt: Prompt) -> Answer:
        if prompt.key is None or prompt.proposed is None:
            raise RecordError("a rule on ratings reviews suggestions, and answers nothing else")
        means = [self._means[prompt.key[0], model] for model, _ in prompt.proposed]
        wrong = []
        slots = list(enumerate(zip(prompt.proposed, means), 1))
        for (slot, ((_, points), mean)), (other, ((_, others), beside)) in itertools.combinations(slots, 2):
            if abs(mean - beside) <= SAME or (points - others) * (mean - beside) > 0:
                continue
            high, low = (slot, other) if mean > beside else (other, slot)
            wrong.append(f"Doctor {high} above Doctor {low} ({max(mean, beside):.2f} and {min(mean, beside):.2f})")
        return Answer(f"Review: object\nThe mean ratings put {', '.join(wrong)}." if wrong else "Review: accept")
