"""Find questions that repeat each other, and training cases that repeat texts of evaluation cases.

Texts are compared by their words (`records.language.normalise`). A shingle is a run of words, hashed to a 64-bit number.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from automedeval.records import Case, patient_question
from automedeval.records.language import normalise

WORDS = 12  # of a shingle; a shorter text occurs in many answers
MOST_SHARED = 0.5  # share of a text's shingles above which it repeats an evaluation text
SIMILAR = 0.9  # Jaccard similarity from which two questions are the same
SIMILAR_WORDS = 3  # of a shingle of a question
_ROUNDING = 1e-9  # 0.9 * 10 is not exactly 9 in floating point


def shingles(normalised: str, words: int = WORDS) -> np.ndarray:
    """Return the distinct shingles of a normalised text: uint64 [n], ascending; a text of fewer words is one shingle."""
    tokens = normalised.split()
    if not tokens:
        return np.empty(0, np.uint64)
    length = min(words, len(tokens))
    values = np.fromiter(map(hash, tokens), np.int64, len(tokens)).view(np.uint64)
    # The sum of word hashes, each times an odd number that depends on its place, depends on the order of the words.
    factors = [pow(0x9E3779B97F4A7C15, 2 * place + 1, 1 << 64) for place in range(length)]
    runs = len(tokens) - length + 1
    total = np.zeros(runs, np.uint64)
    for place, factor in enumerate(factors):
        total += values[place : place + runs] * np.uint64(factor)
    return np.unique(total)


class ShingleIndex:
    """Index the shingles of many texts, in twelve bytes each; `words` is the length of a shingle."""

    def __init__(self, texts: Iterable[str], words: int = WORDS):
        self.words = words
        parts = [shingles(normalise(text), words) for text in texts]
        self._sizes = np.array([len(part) for part in parts], np.int32)
        hashes = np.concatenate([np.empty(0, np.uint64), *parts])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._owners = np.repeat(np.arange(len(parts), dtype=np.int32), self._sizes)[order]

    def shared(self, text: str) -> tuple[float, float]:
        """Return which share of a text's distinct shingles the index holds, and the largest share of one indexed text in it.

        Both are 0 for a text without words.
        """
        hashes = shingles(normalise(text), self.words)
        starts, ends = (np.searchsorted(self._hashes, hashes, side) for side in ("left", "right"))
        held_here = ends > starts
        if not held_here.any():
            return 0.0, 0.0
        owners = np.concatenate(
            [self._owners[start:end] for start, end in zip(starts[held_here], ends[held_here])]
        )
        held = np.bincount(owners) / self._sizes[: owners.max() + 1].clip(1)
        return float(held_here.mean()), float(held.max())


def near_duplicates(texts: Sequence[str], kept: int = 0) -> list[int | None]:
    """Return for each text the index of the earlier text that it repeats, None for one that stays.

    Two texts repeat each other if the Jaccard similarity of their sets of shingles is at least `SIMILAR`. A text is compared
    with texts that stay alone, so a chain of small changes does not drop a text that is far from everything kept. The first
    `kept` texts all stay. Texts without words repeat nothing.

    The result is exact. An inverted index over the rarest shingles of each text leaves few pairs to compare (prefix filtering:
    two sets with a Jaccard similarity of t share a shingle among the first n - ⌈t·n⌉ + 1 of each in any common order).
    """
    hashes = [shingles(normalise(text), SIMILAR_WORDS) for text in texts]
    # Each shingle gets a number, the rarest the smallest; `sets` has each text's numbers, ascending.
    every = np.concatenate([np.empty(0, np.uint64), *hashes])
    _, places, counts = np.unique(every, return_inverse=True, return_counts=True)
    numbers = np.argsort(np.argsort(counts, kind="stable"))[places]
    sets = [
        np.sort(part) for part in np.split(numbers, np.cumsum([len(part) for part in hashes])[:-1])
    ]
    repeats: list[int | None] = [None] * len(texts)
    holders: dict[int, list[int]] = defaultdict(list)
    for number, ranks in zip(range(len(texts)), map(np.ndarray.tolist, sets)):
        prefix, own = (
            ranks[: len(ranks) - math.ceil(SIMILAR * len(ranks) - _ROUNDING) + 1],
            set(ranks),
        )
        for other in sorted({other for rank in prefix for other in holders.get(rank, ())}):
            common = len(own.intersection(sets[other].tolist()))
            if common >= SIMILAR * (len(own) + len(sets[other]) - common) - _ROUNDING:
                repeats[number] = other
                break
        if repeats[number] is None or number < kept:
            for rank in prefix:
                holders[rank].append(number)
    return repeats


class Evaluation:
    """Hold the texts of evaluation cases, and find training cases that repeat them."""

    def __init__(self, cases: Iterable[Case]):
        cases = list(cases)
        self._questions = [patient_question(case.question) for case in cases]
        self._index = ShingleIndex(text for case in cases for text in _long_texts(case))

    def leaks(self, cases: Iterable[Case]) -> Iterator[tuple[str, str]]:
        """Yield (case id, kind of leak) for each training case that leaks; only the first kind found."""
        cases, count = list(cases), len(self._questions)
        questions = [*self._questions, *(patient_question(case.question) for case in cases)]
        for case, earlier in zip(cases, near_duplicates(questions, kept=count)[count:]):
            if earlier is not None and earlier < count:
                yield case.id, "question of an evaluation case"
            elif any(max(self._index.shared(text)) > MOST_SHARED for text in _long_texts(case)):
                yield case.id, "text of an evaluation case"
            elif holds_reference(case):
                yield case.id, "reference in a response"


def holds_reference(case: Case) -> bool:
    """Return whether a response holds the whole reference, unless that is short."""
    reference = normalise(case.reference or "")
    # The right response of a synthetic pair is the reference by design.
    others = (response.text for response in case.responses if response.model != "answer-right")
    return _long(reference) and any(f" {reference} " in f" {normalise(text)} " for text in others)


def _long_texts(case: Case) -> list[str]:
    """Return the responses and the reference without those of fewer words than a shingle, which occur elsewhere by chance."""
    texts = [*(response.text for response in case.responses), case.reference or ""]
    return [text for text in texts if _long(normalise(text))]


def _long(normalised: str) -> bool:
    return normalised.count(" ") + 1 >= WORDS
