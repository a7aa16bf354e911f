"""Scores by embeddings, worked by hand with vectors that count letters; texts without words."""

import re

import numpy as np
import pytest
from metrics.test_lexical import case

from automedeval.metrics.embedding import EMBEDDINGS, NAMES, READ_REFERENCE, nearest_pieces, pieces

QUESTION, REFERENCE = EMBEDDINGS


class Letters:
    """An encoder whose vectors count letters; it keeps the texts that it was given."""

    name = "letters"
    fingerprint = "0"

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


FAR = " ".join(["b"] * 100)
TALK = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
]


@pytest.mark.parametrize(
    ("question", "answers", "cosines"),
    [
        ("a a", (f"{FAR} a a", FAR, "a a b"), [1, 0, 2 / 5**0.5]),
        (f"{FAR} c", ("c", "a c"), [1, 0.5**0.5]),  # longer than a piece
        (TALK, ("a", "b"), [0.5**0.5, 0]),
    ],
)
def test_the_nearest_piece_counts(question, answers, cosines):
    scores = nearest_pieces([case(question, *answers, reference=f"{FAR} a")], Letters())
    assert scores[QUESTION] == pytest.approx(cosines, abs=1e-6)


def test_the_nearest_piece_of_a_reference_counts_and_every_text_is_encoded_once():
    encoder = Letters()
    done = []
    cases = [case("a a", "c", "a c", reference=f"{FAR} a"), case("a a", FAR)]
    scores = nearest_pieces(cases, encoder, on_batch=done.append)
    wanted = pytest.approx([0, 0.5**0.5, np.nan], abs=1e-6, nan_ok=True)
    assert scores[REFERENCE] == wanted
    assert len(encoder.seen) == len(set(encoder.seen)) == sum(done)


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
