"""The stems and numbers by which texts are compared."""

from automedeval.study.dataset.terms import terms


def test_terms_are_stems():
    assert terms("Prescribes") == terms("prescribed") == terms("prescribing")
    assert terms("1,200 mg") == {"1200"}
    assert terms("This is the best answer of all") == set()
