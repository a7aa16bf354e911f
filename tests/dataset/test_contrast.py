"""Contrast pairs: which text of a pair is the evidence, and which the claim."""

from automedeval.dataset.contrast import Rules, contrast_pairs
from automedeval.evidence.checker import CONTRADICTED, SUPPORTED

SENTENCE = "Aspirin is safe for most adults who take it daily with food."


def test_of_contradicted_pairs_alone_either_text_is_the_evidence() -> None:
    pairs = list(
        contrast_pairs([(f"b{number}", SENTENCE) for number in range(60)], Rules.read(), seed=0)
    )
    supported, contradicted = (
        [each for each in pairs if each["label"] == label] for label in (SUPPORTED, CONTRADICTED)
    )
    assert len(supported) == len(contradicted) == 60
    assert {each["evidence"] for each in supported} == {SENTENCE}
    assert 10 < sum(each["evidence"] == SENTENCE for each in contradicted) < 50
    assert all(SENTENCE in (each["evidence"], each["claim"]) for each in contradicted)
    assert all(each["evidence"] != each["claim"] for each in contradicted)
    assert len({each["claim"] for each in supported}) > 1, "a claim is reworded"
