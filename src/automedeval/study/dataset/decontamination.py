"""Find questions that repeat each other, and training cases that repeat texts of evaluation cases.

Texts are compared by their words (`records.language.normalise`). A shingle is a run of words, hashed to a 64-bit number.
"""

import itertools
import math
from collections import Counter, defaultdict
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
    return np.unique(np.correlate(values, np.array(factors, np.uint64)))


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
        starts = np.searchsorted(self._hashes, hashes, "left")
        ends = np.searchsorted(self._hashes, hashes, "right")
        present = ends > starts
        if not present.any():
            return 0.0, 0.0
        owners = np.concatenate([self._owners[start:end] for start, end in zip(starts, ends)])
        shares = np.bincount(owners) / self._sizes[: owners.max() + 1].clip(1)
        return float(present.mean()), float(shares.max())


def near_duplicates(texts: Sequence[str], kept: int = 0) -> list[int | None]:
    """Return for each text the index of the earlier text that it repeats, None for one that stays.

    Two texts repeat each other if the Jaccard similarity of their sets of shingles is at least `SIMILAR`. A text is compared
    with texts that stay alone, so a chain of small changes does not drop a text that is far from everything kept. The first
    `kept` texts all stay. Texts without words repeat nothing.

    The result is exact. An inverted index over the rarest shingles of each text leaves few pairs to compare (prefix filtering:
    two sets with a Jaccard similarity of t share a shingle among the first n - ⌈t·n⌉ + 1 of each in any common order).
    """
    sets = [set(shingles(normalise(text), SIMILAR_WORDS).tolist()) for text in texts]
    counts = Counter(itertools.chain.from_iterable(sets))
    repeats: list[int | None] = []
    holders: dict[int, list[int]] = defaultdict(list)  # of a shingle: texts that stay
    for number, own in enumerate(sets):
        rarest_first = sorted(own, key=lambda shingle: (counts[shingle], shingle))
        prefix = rarest_first[: len(own) - math.ceil(SIMILAR * len(own) - _ROUNDING) + 1]
        earlier = set(itertools.chain.from_iterable(map(holders.__getitem__, prefix)))
        repeated = (other for other in sorted(earlier) if _are_similar(own, sets[other]))
        repeats.append(next(repeated, None))
        if repeats[number] is None or number < kept:
            for shingle in prefix:
                holders[shingle].append(number)
    return repeats


def _are_similar(own: set[int], other: set[int]) -> bool:
    return len(own & other) >= SIMILAR * len(own | other) - _ROUNDING


class Evaluation:
    """Hold the texts of evaluation cases, and find training cases that repeat them."""

    def __init__(self, cases: Iterable[Case]):
        cases = list(cases)
        self._questions = [patient_question(case.question) for case in cases]
        self._index = ShingleIndex(itertools.chain.from_iterable(map(_long_texts, cases)))

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
