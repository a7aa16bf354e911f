"""Scores by embeddings, worked by hand with vectors that count letters; texts without words."""

import re

import numpy as np
import pytest
from metrics.test_lexical import case

from automedeval.metrics.embedding import EMBEDDINGS, NAMES, READ_REFERENCE, nearest_pieces, pieces

QUESTION, REFERENCE = EMBEDDINGS


class Letters:
    """An encoder whose vectors count letters; it keeps the texts that it was given."""

    name, fingerprint = "letters", "0"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts, on_batch=None) -> np.ndarray:
        self.seen += texts
        counts = np.array(
            [[text.count(letter) for letter in "abc"] for text in texts], dtype=np.float32
        ).reshape(-1, 3)
        if on_batch:
            on_batch(len(texts))
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_a_text_is_cut_into_pieces_without_overlap_and_without_loss():
    text = "".join(f"word{number}, " for number in range(250))
    cut = pieces(text)
    assert [len(re.findall(r"\w+", piece)) for piece in cut] == [100, 100, 50]
    assert "".join(cut) == text
    assert cut[1].startswith("word100, ")
    assert pieces("") == pieces(" … ?! ") == []
    assert [len(piece) for piece in pieces("あ" * 150)] == [100, 50], (
        "without spaces a character is a word"
    )


def test_the_nearest_piece_counts_and_every_text_is_encoded_once():
    encoder, done = Letters(), []
    far = " ".join(["b"] * 100)
    scores = nearest_pieces(
        [case("a a", f"{far} a a", far, "a a b"), case("a a", far)], encoder, on_batch=done.append
    )
    near = 2 / 5**0.5
    assert scores[QUESTION].tolist() == pytest.approx([1, 0, near, 0], abs=1e-6)
    assert len(encoder.seen) == len(set(encoder.seen)) == sum(done)
    assert np.isnan(scores[REFERENCE]).all()
    # Of a question and a reference that are longer than a piece, the nearest piece counts too.
    long = nearest_pieces([case(f"{far} c", "c", "a c", reference=f"{far} a")], encoder)
    assert long[QUESTION].tolist() == pytest.approx([1, 0.5**0.5], abs=1e-6)
    assert long[REFERENCE].tolist() == pytest.approx([0, 0.5**0.5], abs=1e-6)
    talk = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert nearest_pieces([case(talk, "a", "b")], encoder)[QUESTION].tolist() == pytest.approx(
        [0.5**0.5, 0], abs=1e-6
    )


def test_a_text_without_words_has_no_score():
    encoder = Letters()
    scores = nearest_pieces(
        [case("a", "a", "", "…"), case("?!", "b"), case("c", "c", reference="")], encoder
    )
    np.testing.assert_array_equal(scores[QUESTION], [1, np.nan, np.nan, np.nan, 1])
    assert np.isnan(scores[REFERENCE]).all()
    assert "b" not in encoder.seen, "a response that is compared with nothing is not encoded"
    assert nearest_pieces([], encoder, [QUESTION])[QUESTION].shape == (0,)


def test_every_baseline_has_one_name():
    assert len(set(NAMES)) == 6
    assert {name for name in NAMES if "reference" in name} == READ_REFERENCE
