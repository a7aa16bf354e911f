"""Judges that need no model: counted right."""

import math

import numpy as np
import pytest

from automedeval import Case
from automedeval.metrics import lexical


def case(question: str | list, *texts: str, reference: str | None = None) -> Case:
    responses = [{"model": f"m{number}", "text": text} for number, text in enumerate(texts)]
    return Case.from_dict({"id": question if isinstance(question, str) else "c", "question": question,
                           "reference": reference, "responses": responses})  # fmt: skip


def test_longer_text_counts_words():
    texts = ("", "One, two; three.", "don't", "über naïve", "多喝水")
    assert lexical.longer_text([case("q", *texts)]).tolist() == [0, 3, 2, 2, 3]


def test_bm25_by_hand():
    coughs = case("cough syrup", "cough cough syrup", "rest and water")
    scores = lexical.bm25([coughs, case("sleep", "sleep well tonight")])
    # Three documents of three words each, so the length norm is k1; "cough" and "syrup" stand in one of them.
    weight = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert scores[0] == pytest.approx(weight * (2 * 2.5 / (2 + 1.5) + 1 * 2.5 / (1 + 1.5)))
    assert scores[1] == 0
    assert scores[2] == pytest.approx(weight)


def test_bm25_reads_what_the_patient_wrote():
    talk = [{"role": "user", "content": "cough"}, {"role": "assistant", "content": "syrup"}]
    assert lexical.bm25([case(talk, "cough", "syrup")]).tolist()[1] == 0


def test_rouge_l_by_hand():
    texts = ("police kill the gunman", "the gunman kill police", "")
    scores = lexical.rouge_l([case("q", *texts, reference="Police killed the gunman")])
    # Lin 2004, section 3.1: longest common subsequences of 3 and 2 words of four.
    assert scores == pytest.approx([0.75, 0.5, 0.0])
    assert np.isnan(lexical.rouge_l([case("q", "a")])).all()


def test_random_scores_follow_the_text():
    first, second = (lexical.random_scores([case("q", *texts)]).tolist() for texts in ("ab", "ba"))
    assert first == second[::-1] != second
