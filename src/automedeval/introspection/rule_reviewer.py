"""A reviewer that is a plain rule on people's ratings: it stands in for a second model where there is none, as in the demo.

It reads no text. It accepts scores that order the responses as the mean ratings do, on every pair that the raters did not tie;
a tie between such two is no order. How many points a response has is not its business.
"""

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.models.base import Answer, Dialogue, Prompt
from automedeval.records import Case, Rating, RecordError, read_placed

SAME = 1e-9  # mean ratings that differ by no more are tied


@dataclass
class RuleOnRatings:
    """Answers prompts that ask for a review, as a chat does.

    Args:
        path: ratings of the responses, by any annotators on any criteria; a response counts with the mean over annotators of
            the mean over criteria.

    Raises:
        RecordError: the file cannot be read, or is empty.
    """

    path: str | Path
    name: str = field(default="rule on ratings", init=False)
    constrains: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        given: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _, rating in read_placed(self.path, Rating):
            given[rating.case_id, rating.model][rating.annotator].append(rating.score)
        if not given:
            raise RecordError(f"{self.path}: the file is empty")
        self._means = {
            key: sum(sum(scores) / len(scores) for scores in by.values()) / len(by) for key, by in given.items()
        }
        content = json.dumps(sorted((*key, mean) for key, mean in self._means.items()))
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:12]

    def check(self, cases: Iterable[Case]) -> None:
        """Raise RecordError if a response of one of these cases has no rating."""
        for case in cases:
            for model in case.models:
                if (case.id, model) not in self._means:
                    raise RecordError(f"{self.path}: no rating of {model!r} in case {case.id!r}")

    def overflow(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return zeros: a rule has no window."""
        return [0] * len(prompts)

    def estimate(self, prompts: Sequence[Prompt]) -> tuple[int, float]:
        """Return zeros: a rule reads no token, and costs nothing."""
        return 0, 0.0

    def answer(self, prompts: Sequence[Prompt], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Answer]]:
        """Yield (index, review) for the wanted prompts, in their order."""
        for index, prompt in enumerate(prompts):
            if wanted is None or wanted[index]:
                yield index, Answer(self._review(prompt))

    def follow(self, dialogues: Iterable[tuple[Any, Dialogue]]) -> Iterator[tuple[Any, Any]]:
        """Lead dialogues one after another; yield (key, what it returned)."""
        for key, dialogue in dialogues:
            answer = None
            try:
                while True:
                    answer = Answer(self._review(dialogue.send(answer)))
            except StopIteration as end:
                yield key, end.value

    def _review(self, prompt: Prompt) -> str:
        if prompt.key is None or prompt.proposed is None:
            raise RecordError("a rule on ratings reviews suggestions, and answers nothing else")
        means = [self._means[prompt.key[0], model] for model, _ in prompt.proposed]
        wrong = []
        slots = list(enumerate(zip(prompt.proposed, means), 1))
        for (one, ((_, points), mean)), (other, ((_, others), beside)) in itertools.combinations(slots, 2):
            if abs(mean - beside) <= SAME or (points - others) * (mean - beside) > 0:
                continue
            high, low = (one, other) if mean > beside else (other, one)
            wrong.append(f"Doctor {high} above Doctor {low} ({max(mean, beside):.2f} and {min(mean, beside):.2f})")
        return f"Review: object\nThe mean ratings put {', '.join(wrong)}." if wrong else "Review: accept"
