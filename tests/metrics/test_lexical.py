"""Judges that need no model: counted right, and as good on human-rated answers as they are known to be."""

import math
from pathlib import Path

import numpy as np
import pytest

from automedeval import Case
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.metrics import lexical
from automedeval.stats import agreement
from automedeval.stats.bootstrap import value_of


def case(question: str | list, *texts: str, reference: str | None = None) -> Case:
    responses = [{"model": f"m{number}", "text": text} for number, text in enumerate(texts)]
    return Case.from_dict({"id": question if isinstance(question, str) else "c", "question": question,
                           "reference": reference, "responses": responses})  # fmt: skip


def test_longer_text_counts_words() -> None:
    texts = ("", "One, two; three.", "don't", "über naïve", "多喝水")
    assert lexical.longer_text([case("q", *texts)]).tolist() == [0, 3, 2, 2, 3]


def test_bm25_by_hand() -> None:
    coughs = case("cough syrup", "cough cough syrup", "rest and water")
    scores = lexical.bm25([coughs, case("sleep", "sleep well tonight")])
    # Three documents of three words each, so the length norm is k1; "cough" and "syrup" stand in one of them.
    weight = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert scores[0] == pytest.approx(weight * (2 * 2.5 / (2 + 1.5) + 1 * 2.5 / (1 + 1.5)))
    assert scores[1] == 0
    assert scores[2] == pytest.approx(weight)


def test_bm25_reads_what_the_patient_wrote() -> None:
    talk = [{"role": "user", "content": "cough"}, {"role": "assistant", "content": "syrup"}]
    assert lexical.bm25([case(talk, "cough", "syrup")]).tolist()[1] == 0


def test_rouge_l_by_hand() -> None:
    texts = ("police kill the gunman", "the gunman kill police", "")
    scores = lexical.rouge_l([case("q", *texts, reference="Police killed the gunman")])
    # Lin 2004, section 3.1: longest common subsequences of 3 and 2 words of four.
    assert scores == pytest.approx([0.75, 0.5, 0.0])
    assert np.isnan(lexical.rouge_l([case("q", "a")])).all()


def test_random_scores_follow_the_text_and_the_seed() -> None:
    first, second = case("q", "a", "b"), case("q", "b", "a")
    assert lexical.random_scores([first]).tolist() == lexical.random_scores([second])[::-1].tolist()
    assert lexical.random_scores([first]).tolist() != lexical.random_scores([first], seed=1).tolist()


@pytest.mark.parametrize(
    ("folder", "longer", "one_rater"),
    [("feedbackqa", 0.61, 0.73), ("feedbackqa_cdc_valid", 0.55, 0.80), ("mediqa_validation", 0.58, None)],
)
def test_known_concordances_on_answers_that_people_rated(
    human_data: Path, folder: str, longer: float, one_rater: float | None
) -> None:
    cases = Cases.read(str(human_data / folder / "cases.jsonl"))
    people = read_ratings(str(human_data / folder / "ratings.jsonl"), cases)
    panel, relation = cases.panel, people.relations

    def concordance(scores: np.ndarray) -> float:
        return value_of(agreement.accuracies(panel, relation, panel.relations(scores))["concordance"], len(cases))

    assert concordance(lexical.longer_text(cases.records)) == pytest.approx(longer, abs=0.01)
    assert concordance(lexical.random_scores(cases.records)) == pytest.approx(0.5, abs=0.06)
    if one_rater is not None:
        raters, relations, _ = people.leave_one_out()
        ceiling = agreement.concordance(raters, *relations)
        assert value_of(ceiling, len(cases)) == pytest.approx(one_rater, abs=0.01)
