"""Score responses by the vectors of a sentence encoder: baselines that know similar words, and were not trained to judge.

The encoder is an argument: this module loads no model.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy import ndarray

from automedeval.metrics.lexical import BASELINES, WORD
from automedeval.records import Case, patient_question
from automedeval.records.text import readable
from automedeval.records.types import each_once

PIECE = 100  # words of a piece: about 130 tokens, so that a piece fits into the window of a small encoder

QUESTION = "embedding to the question"
REFERENCE = "embedding to the reference"
# Baseline → the text that responses are compared with; None or no words where a case has none.
EMBEDDINGS: dict[str, Callable[[Case], str | None]] = {
    QUESTION: lambda case: patient_question(case.question),
    REFERENCE: lambda case: case.reference,
}
NAMES = (*BASELINES, *EMBEDDINGS)
OnBatch = Callable[[int], object] | None  # is told how many texts each batch had
READ_REFERENCE = frozenset({"ROUGE-L to the reference", REFERENCE})


class TextEncoder(Protocol):
    """An encoder of texts, such as `models.embeddings.Encoder`."""

    name: str
    fingerprint: str

    def encode(self, texts: Sequence[str], on_batch: OnBatch = None) -> ndarray:
        """Return unit vectors, float [texts, dimensions]; call `on_batch` with the number of texts of each batch."""


def pieces(text: str) -> list[str]:
    """Cut a text into pieces of `PIECE` words without overlap; the last may be shorter. A text without words has no piece."""
    starts = [word.start() for word in WORD.finditer(text)][::PIECE]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)])]


class Nearest(NamedTuple):
    """How near a response is to a text."""

    cosine: float  # the largest one between a piece of the response and a piece of the text; NaN where one has no words
    piece: str  # that piece of the response; "" where there is none


def nearest(
    cases: Sequence[Case],
    encoder: TextEncoder,
    names: Sequence[str],
    on_batch: OnBatch = None,
) -> dict[str, list[Nearest]]:
    """Compare the responses of cases with their questions, or their references: name → an entry for each of all responses.

    Each piece is encoded once, so that equal texts have equal scores. A piece longer than the encoder's window is cut there.
    `on_batch` is called with the number of pieces that were encoded, after each batch.
    """
    answers = []
    sides: dict[str, list[list[str]]] = {name: [] for name in names}
    for case in cases:
        texts = [pieces(readable(EMBEDDINGS[name](case) or "")) for name in names]
        for response in case.responses:
            # A response with nothing to compare with is not encoded.
            answers.append(pieces(readable(response.text)) if any(texts) else [])
            for name, text in zip(names, texts):
                sides[name].append(text)
    different = each_once(chain(*sides.values(), answers))
    vectors = dict(zip(different, encoder.encode(different, on_batch)))

    def compare(response: list[str], text: list[str]) -> Nearest:
        if not response or not text:
            return Nearest(np.nan, "")
        left = np.stack([vectors[piece] for piece in response])
        right = np.stack([vectors[piece] for piece in text])
        cosines = (left @ right.T).max(axis=1)
        best = int(cosines.argmax())
        return Nearest(float(cosines[best]), response[best])

    return {name: list(map(compare, answers, texts)) for name, texts in sides.items()}


def nearest_pieces(
    cases: Sequence[Case],
    encoder: TextEncoder,
    names: Sequence[str] = tuple(EMBEDDINGS),
    on_batch: OnBatch = None,
) -> dict[str, ndarray]:
    """Score every response by the cosine of `nearest`; return name → float [responses of all cases]."""
    compared = nearest(cases, encoder, names, on_batch)
    return {
        name: np.array([entry.cosine for entry in entries]) for name, entries in compared.items()
    }
