"""Texts that repeat each other: near-duplicate questions, and word shingles that training and evaluation texts share.

A shingle is a run of words, as one 64-bit number that is the same in every process. Words are what is left of a text after
Unicode normalisation, case folding and the removal of everything but letters and digits.
"""

import hashlib
import itertools
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from automedeval.records import PAIR_MODELS, Case, RecordError, question_text

_WORD = re.compile(r"[^\W_]+")
_ROUNDING = 1e-9  # 0.9 * 10 is not 9 to a computer


def normalise(text: str) -> str:
    """Return the words of a text, case-folded, with one space between them: what two equal questions have in common."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def shingles(text: str, words: int = 12) -> set[int]:
    """Return the runs of `words` words of a text as numbers; a shorter text is one run, an empty one has none."""
    return set(_hashes(normalise(text), words).tolist())


@lru_cache(maxsize=1 << 18)
def _word_hash(word: str) -> int:
    # Words with the surrogates that JSON can carry are words too.
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _hashes(normalised: str, words: int) -> np.ndarray:
    """Return the distinct shingles of a normalised text: uint64 [n], ascending."""
    found = normalised.split()
    if not found:
        return np.empty(0, np.uint64)
    length = min(words, len(found))
    values = np.fromiter(map(_word_hash, found), np.uint64, len(found))
    # A sum of word hashes, each times an odd number of its place: word order counts, and numpy does all runs at once.
    factors = [pow(0x9E3779B97F4A7C15, 2 * place + 1, 1 << 64) for place in range(length)]
    runs = len(found) - length + 1
    total = np.zeros(runs, np.uint64)
    for place, factor in enumerate(factors):
        total += values[place : place + runs] * np.uint64(factor)
    return np.unique(total)


class ShingleIndex:
    """The shingles of many texts, eight bytes each.

    Args:
        texts: for instance every question and response of the evaluation cases.
        words: the length of a shingle.
    """

    def __init__(self, texts: Iterable[str], words: int = 12):
        if words < 1:
            raise RecordError(f"a shingle has at least one word, not {words}")
        self.words = words
        parts = [_hashes(normalise(text), words) for text in texts]
        self._hashes = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._hashes)

    def held(self, hashes: np.ndarray) -> int:
        """Return how many of these shingles the index holds."""
        if not len(self):
            return 0
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        return int((self._hashes[places] == hashes).sum())

    def shared(self, text: str) -> float:
        """Return the share of a text's shingles that occur in the index."""
        return shared(text, self, self.words)


def shared(text: str, index: ShingleIndex, words: int = 12) -> float:
    """Return the share of a text's distinct shingles that occur in an index, 0 for a text without words.

    Raises:
        RecordError: the index was made of shingles of another length.
    """
    if words != index.words:
        raise RecordError(f"the index holds shingles of {index.words} words, not of {words}")
    hashes = _hashes(normalise(text), words)
    return index.held(hashes) / len(hashes) if len(hashes) else 0.0


def near_duplicates(texts: Sequence[str], threshold: float = 0.9, words: int = 3) -> list[int | None]:
    """Return for each text the index of the earlier text that it repeats, None for one that stays.

    Two texts repeat each other when they are equal after `normalise`, or when the Jaccard similarity of their sets of
    word shingles is at least `threshold`. Only a text that stays is repeated (an equal one, else the earliest), so that a
    chain of small changes does not drop what is far from everything kept. Texts without words repeat nothing.

    The result is exact. Candidates come from an inverted index over the rarest shingles of each text (prefix filtering:
    two sets with a Jaccard similarity of t share a shingle among the first n - ⌈t·n⌉ + 1 of each in any common order), which
    leaves very few pairs to compare.

    Raises:
        RecordError: a threshold outside of 0 < threshold <= 1.
    """
    if not 0 < threshold <= 1:
        raise RecordError(f"the threshold of near-duplicates must be above 0 and at most 1, not {threshold}")
    normalised = [normalise(text) for text in texts]
    sets = _rarest_first([_hashes(text, words) for text in normalised])
    repeats: list[int | None] = [None] * len(normalised)
    first: dict[str, int] = {}
    holders: dict[int, list[int]] = defaultdict(list)
    for number, (text, ranks) in enumerate(zip(normalised, sets)):
        if not text:
            continue
        if text in first:
            repeats[number] = first[text]
            continue
        size = len(ranks)
        prefix = ranks[: size - math.ceil(threshold * size - _ROUNDING) + 1].tolist()
        candidates = {other for rank in prefix for other in holders.get(rank, ())}
        own = set(ranks.tolist()) if candidates else set()
        for other in sorted(candidates):
            if min(size, len(sets[other])) < threshold * max(size, len(sets[other])) - _ROUNDING:
                continue
            common = len(own.intersection(sets[other].tolist()))
            if common >= threshold * (size + len(sets[other]) - common) - _ROUNDING:
                repeats[number] = other
                break
        else:
            for rank in prefix:
                holders[rank].append(number)
        first[text] = number if repeats[number] is None else repeats[number]
    return repeats


def _rarest_first(hashes: list[np.ndarray]) -> list[np.ndarray]:
    """Number the shingles of all texts from the rarest to the most frequent; return each text's numbers, ascending."""
    if not hashes:
        return []
    distinct, places, counts = np.unique(np.concatenate(hashes), return_inverse=True, return_counts=True)
    rank = np.empty(len(distinct), np.int32)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(distinct), dtype=np.int32)
    ends = np.cumsum([len(part) for part in hashes])[:-1]
    return [np.sort(part) for part in np.split(rank[places], ends)]


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
