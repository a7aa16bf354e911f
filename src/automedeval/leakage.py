"""Leakage: what a training case has in common with the cases a judge is evaluated on, or with its own reference.

Three checks, each named in the arithmetic: a question that stands in an evaluation case too, or nearly so; a text that shares
more than half of its runs of twelve words with the evaluation cases' responses; a response that holds the reference whole.
"""

import itertools
from collections.abc import Iterable, Iterator

from automedeval.found_verdicts import PAIR_MODELS
from automedeval.overlap import ShingleIndex, near_duplicates, normalise
from automedeval.prompts import question_text
from automedeval.records import Case

WORDS = 12  # of a shingle; a shorter reference stands in many an honest response
MOST_SHARED = 0.5
SIMILAR = 0.9  # Jaccard similarity from which two questions are the same
WINDOW = 5000  # training cases whose texts are in memory at once


class Evaluation:
    """The questions and responses that training must not have seen; memory grows with these, not with the training cases."""

    def __init__(self, cases: Iterable[Case]):
        self._ids: list[str] = []
        questions: list[str] = []

        def responses() -> Iterator[str]:
            for case in cases:
                self._ids.append(case.id)
                questions.append(question_text(case.question))
                yield from (response.text for response in case.responses)
                if case.reference:
                    yield case.reference

        self._index = ShingleIndex(responses(), WORDS)
        # Questions that repeat one another come in layers, so that what repeats any of them is found: `near_duplicates`
        # compares with the first of its kind alone.
        self._layers: list[list[tuple[str, str]]] = []
        left = list(zip(self._ids, questions))
        while left:
            repeats = near_duplicates([question for _, question in left], SIMILAR)
            self._layers.append([each for each, earlier in zip(left, repeats) if earlier is None])
            # Equal questions need no second layer.
            seen = {normalise(question) for _, question in self._layers[-1]}
            left = [
                each for each, earlier in zip(left, repeats) if earlier is not None and normalise(each[1]) not in seen
            ]

    def leaks(self, cases: Iterable[Case]) -> Iterator[tuple[str, str, str]]:
        """Yield (case id, kind of leak, what it leaks) for each training case that leaks, the first kind found."""
        cases = iter(cases)
        while window := list(itertools.islice(cases, WINDOW)):
            known = self._known_questions([question_text(case.question) for case in window])
            for place, case in enumerate(window):
                if place in known:
                    yield case.id, "question of an evaluation case", f"repeats the question of {known[place]!r}"
                elif (found := self._shared(case)) is not None:
                    yield case.id, "text of an evaluation case", found
                elif (model := holder_of_reference(case)) is not None:
                    yield case.id, "reference in a response", f"the response of {model!r} holds the reference"

    def _known_questions(self, questions: list[str]) -> dict[int, str]:
        """Return which of some questions repeat an evaluation case's → the id of that case."""
        found: dict[int, str] = {}
        for layer in self._layers:
            repeats = near_duplicates([*(question for _, question in layer), *questions], SIMILAR)[len(layer) :]
            for place, earlier in enumerate(repeats):
                if earlier is not None and earlier < len(layer):
                    found.setdefault(place, layer[earlier][0])
        return found

    def _shared(self, case: Case) -> str | None:
        texts = [(f"the response of {response.model!r}", response.text) for response in case.responses]
        if case.reference:
            texts.append(("the reference", case.reference))
        for name, text in texts:
            # A short text is one shingle; that it occurs somewhere says little.
            if (share := self._index.shared(text)) > MOST_SHARED and _long(normalise(text)):
                return f"{name} shares {share:.0%} of its runs of {WORDS} words with evaluation cases"
        return None


def holder_of_reference(case: Case) -> str | None:
    """Return the model whose response holds the whole reference, None if none does or the reference is short."""
    reference = normalise(case.reference or "")
    if not _long(reference):
        return None
    for response in case.responses:
        # The right response of a made-up pair is the reference by design; it leaks nothing that is to be judged.
        if response.model != PAIR_MODELS[0] and f" {reference} " in f" {normalise(response.text)} ":
            return response.model
    return None


def _long(normalised: str) -> bool:
    return normalised.count(" ") + 1 >= WORDS
