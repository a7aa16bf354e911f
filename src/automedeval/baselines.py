"""Judges that need no model: what a real judge has to beat.

Each scores all responses of all cases by something that anybody can count. They know no medicine.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from rapidfuzz.distance import LCSseq

from automedeval.records import Case

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # scripts that put no space between words: a character is a word
WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def words(text: str) -> list[str]:
    """Return the lower-case runs of letters and digits, for English as the ROUGE scripts cut them."""
    return WORD.findall(text.lower())


def patient_text(case: Case) -> str:
    """Return the question, or all that the patient wrote in a conversation."""
    if isinstance(case.question, str):
        return case.question
    return "\n".join(message["content"] for message in case.question if message["role"] == "user")


def longer_text(cases: Sequence[Case]) -> np.ndarray:
    """Score a response by its number of words."""
    return np.array([len(words(response.text)) for case in cases for response in case.responses], dtype=float)


def bm25(cases: Sequence[Case], k1: float = 1.5, b: float = 0.75) -> np.ndarray:
    """Score a response by BM25 of the question against it (Robertson and Zaragoza 2009), all responses being the collection."""
    documents = [Counter(words(response.text)) for case in cases for response in case.responses]
    lengths = [sum(document.values()) for document in documents]
    average = sum(lengths) / len(lengths) or 1.0
    frequency = Counter(word for document in documents for word in document)
    scores, at = [], 0
    for case in cases:
        query = set(words(patient_text(case)))
        weights = {
            word: math.log(1 + (len(documents) - frequency[word] + 0.5) / (frequency[word] + 0.5)) for word in query
        }
        for document, length in zip(documents[at : at + len(case.responses)], lengths[at:]):
            norm = k1 * (1 - b + b * length / average)
            scores.append(sum(weights[w] * document[w] * (k1 + 1) / (document[w] + norm) for w in sorted(query)))
        at += len(case.responses)
    return np.array(scores)


def rouge_l(cases: Sequence[Case]) -> np.ndarray:
    """Score a response by ROUGE-L F1 against the reference (Lin 2004, no stemming); NaN where there is no reference."""
    scores = []
    for case in cases:
        reference = words(case.reference) if case.reference is not None else None
        for response in case.responses:
            found = words(response.text)
            if reference is None:
                scores.append(np.nan)
            elif not reference or not found:
                scores.append(0.0)
            else:
                scores.append(2 * LCSseq.similarity(reference, found) / (len(reference) + len(found)))
    return np.array(scores)


def random_scores(cases: Sequence[Case], seed: int = 0) -> np.ndarray:
    """Score a response by a number that only a hash of its text decides."""
    keys = (f"{seed}\0{case.id}\0{response.text}" for case in cases for response in case.responses)
    return np.array(
        [int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:6]) / 2**48 for key in keys]
    )


BASELINES: dict[str, Callable[[Sequence[Case]], np.ndarray]] = {
    "longer text": longer_text,
    "BM25 to the question": bm25,
    "ROUGE-L to the reference": rouge_l,
    "random": random_scores,
}
