"""Lexical scores of responses, which need no model and no medical knowledge: baselines for the judges."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from rapidfuzz.distance import Indel

from automedeval.records import Case, digest, patient_question

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # scripts without spaces between words: a character is a word
WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
K1 = 1.5  # of BM25: the usual values
B = 0.75


def words(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case, for English as in the ROUGE scripts."""
    return WORD.findall(text.lower())


def longer_text(cases: Sequence[Case]) -> ndarray:
    """Score a response by its number of words; float [responses of all cases]."""
    counts = []
    for case in cases:
        counts += [len(words(response.text)) for response in case.responses]
    return np.array(counts, dtype=float)


@dataclass(frozen=True)
class Collection:
    """The figures of a collection of responses for BM25: number, mean length in words, and number that contain each word."""

    size: int
    average: float
    frequency: Mapping[str, int]

    @classmethod
    def of(cls, cases: Iterable[Case]) -> "Collection":
        """Count the words of all responses of the cases."""
        size = length = 0
        frequency = Counter[str]()
        for case in cases:
            for response in case.responses:
                tokens = words(response.text)
                size += 1
                length += len(tokens)
                frequency.update(set(tokens))
        return cls(size, length / size if length else 1.0, frequency)

    @property
    def fingerprint(self) -> str:
        """Return eight hexadecimal digits over all figures."""
        return digest([self.size, self.average, sorted(self.frequency.items())])[:8]

    def weight(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        containing = self.frequency.get(word, 0)
        return math.log(1 + (self.size - containing + 0.5) / (containing + 0.5))


def bm25(cases: Sequence[Case], collection: Collection | None = None) -> ndarray:
    """Score a response by BM25 with the question as the query (Robertson and Zaragoza 2009).

    The inverse document frequencies are those of the collection, by default of the responses of these cases.
    """
    collection = collection or Collection.of(cases)
    scores = []
    for case in cases:
        weights = {
            word: collection.weight(word)
            for word in sorted(set(words(patient_question(case.question))))
        }
        for response in case.responses:
            counts = Counter(words(response.text))
            norm = K1 * (1 - B + B * counts.total() / collection.average)
            scores.append(
                sum(
                    weight * counts[w] * (K1 + 1) / (counts[w] + norm)
                    for w, weight in weights.items()
                )
            )
    return np.array(scores)


def rouge_l(cases: Sequence[Case]) -> ndarray:
    """Score a response by ROUGE-L F1 against the reference (Lin 2004, no stemming); NaN without a reference."""
    scores = []
    for case in cases:
        reference = words(case.reference or "")
        for response in case.responses:
            tokens = words(response.text)
            if case.reference is None:
                scores.append(np.nan)
            elif not tokens:
                scores.append(0.0)
            else:  # twice the longest common subsequence, by the number of words of both
                scores.append(Indel.normalized_similarity(reference, tokens))
    return np.array(scores)


def random_scores(cases: Sequence[Case]) -> ndarray:
    """Score a response by a hash of case id and text, uniform on [0, 1)."""
    scores = []
    for case in cases:
        for response in case.responses:
            key = f"0\0{case.id}\0{response.text}".encode()
            scores.append(int.from_bytes(hashlib.sha256(key).digest()[:6]) / 2**48)
    return np.array(scores)


BASELINES: dict[str, Callable[[Sequence[Case]], ndarray]] = {
    "longer text": longer_text,
    "BM25 to the question": bm25,
    "ROUGE-L to the reference": rouge_l,
    "random": random_scores,
}
