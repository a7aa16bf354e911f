"""What the small judge reads of a response: numbers that a small encoder gives, with and without a trained adapter.

A text that the encoder cannot read (see `Encoder.reads`) counts as one without words.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from automedeval.metrics.embedding import pieces
from automedeval.metrics.lexical import WORD, rouge_l
from automedeval.models.embeddings import Encoder
from automedeval.models.pair_reader import PairReader
from automedeval.records import Case, Question, patient_messages
from automedeval.records.text import readable
from automedeval.records.types import each_once

# What is read of a response and its question:
#   first             the cosine of the question with the response's first piece
#   late_interaction  the mean over the question's tokens of the largest cosine with a token of the response
#                     (Khattab and Zaharia 2020, ColBERT)
#   on_topic          ln(1 + the sum over the response's tokens of how far the cosine with the question is above NEAR): how much
#                     of the response is about the question; words on other things do not raise it
#   relevance         what the trained cross-encoder says of the question and the nearest piece of the response
QUESTION = ("first", "late_interaction", "on_topic", "relevance")
# What is read in addition where there is a reference:
#   reference         the largest cosine of a piece of the response with a piece of the reference
#   covered           as late_interaction, for the tokens of the reference
#   backed            the mean over the response's tokens of the largest cosine with a token of the reference
#   overlap           ROUGE-L of the two
REFERENCE = ("reference", "covered", "backed", "overlap")
FEATURES = (*QUESTION, *REFERENCE)
NEAR = 0.2
LEAST_ASKED = 5  # words of a question that needs no earlier message to be understood


class Text(NamedTuple):
    """An encoded text with words: the vectors of its pieces, float [pieces, dimensions], and of all their tokens."""

    pieces: list[str]
    vectors: np.ndarray
    tokens: np.ndarray


def read_responses(cases: Sequence[Case], pair_reader: PairReader) -> np.ndarray:
    """Return the features of every response of some cases, float [responses of all cases, FEATURES].

    They are NaN where there are no words, those of REFERENCE also without a reference. `pair_reader` gives the relevance, and
    its encoder all else.
    """
    questions = [newest(case.question) for case in cases]
    references = [case.reference or "" for case in cases]
    responses = chain.from_iterable(case.responses for case in cases)
    texts = [response.text for response in responses]
    encoded = encode([*questions, *references, *texts], pair_reader.encoder)
    features = np.full((len(texts), len(FEATURES)), np.nan)
    rows = iter(features)
    overlaps = iter(rouge_l(cases))
    pairs: list[tuple[np.ndarray, tuple[str, str]]] = []
    for case, question, reference in zip(cases, questions, references):
        asked = encoded.get(question)
        known = encoded.get(reference)
        for response, row, overlap in zip(case.responses, rows, overlaps):
            text = encoded.get(response.text)
            if asked and text:
                row[: len(QUESTION) - 1] = own_features(asked, text)
                nearest = (text.vectors @ asked.vectors.T).max(axis=1).argmax()
                pairs.append((row, (question, text.pieces[nearest])))
            if known and text:
                likeness = (known.vectors @ text.vectors.T).max()
                row[len(QUESTION) :] = likeness, *late_interaction(known, text), overlap
    different = list(dict.fromkeys(pair for _, pair in pairs))
    relevance = dict(zip(different, pair_reader(different)))
    for row, pair in pairs:
        row[len(QUESTION) - 1] = relevance[pair]
    return features


def columns_of(features: np.ndarray, names: Iterable[str]) -> np.ndarray:
    """Return the named ones of `FEATURES`, float [responses, names]."""
    return features[:, [FEATURES.index(name) for name in names]]


def newest(question: Question) -> str:
    """Return what the small judge reads of a question: the newest messages, as many as make `LEAST_ASKED` words.

    Earlier messages were answered, and would draw a likeness to themselves.
    """
    taken: list[str] = []
    for text in patient_messages(question):
        if len(WORD.findall(" ".join(taken))) < LEAST_ASKED:
            taken.append(text)
    return readable("\n".join(taken))


def encode(texts: Sequence[str], encoder: Encoder) -> dict[str, Text]:
    """Encode the texts with words piece by piece; equal pieces are encoded once, so that equal texts have equal features."""
    different = list(dict.fromkeys(texts))
    shown = list(map(readable, different))
    cut = [pieces(text) if is_read else [] for text, is_read in zip(shown, encoder.reads(shown))]
    distinct = each_once(cut)
    vectors_of = dict(zip(distinct, encoder.encode_tokens(distinct)))
    encoded = {}
    for text, parts in zip(different, cut):
        if parts:
            vectors, tokens = zip(*(vectors_of[piece] for piece in parts))
            encoded[text] = Text(parts, np.stack(vectors), np.concatenate(tokens))
    return encoded


def own_features(question: Text, response: Text) -> list[float]:
    """Return `first`, `late_interaction` and `on_topic`."""
    near = cosines(response.tokens, question.vectors).max(axis=1) - NEAR
    return [
        float((question.vectors @ response.vectors[0]).max()),
        late_interaction(question, response)[0],
        float(np.log1p(near.clip(0).sum())),
    ]


def late_interaction(text: Text, response: Text) -> tuple[float, float]:
    """Return the mean over the tokens of a text of the largest cosine with a token of the response, and the other way round."""
    if not len(text.tokens) or not len(response.tokens):
        return np.nan, np.nan
    between = cosines(text.tokens, response.tokens)
    return float(between.max(axis=1).mean()), float(between.max(axis=0).mean())


def cosines(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the cosines of unit vectors, float [vectors, others]."""
    import torch  # its threads sleep between two steps, numpy's use the processor

    return (torch.from_numpy(vectors) @ torch.from_numpy(others).T).numpy()
