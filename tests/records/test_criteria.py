"""The criteria of a case and people's labels of them."""

import pytest
from doubles.agreement_study import case_of
from tables import each_row, refused

from automedeval.records import Case, CriterionLabel, RecordError, Verdict

CASE = case_of("c", "Q?", {"m": "t"})
GOOD = {"criterion": "names the dose", "points": 5, "tags": ["theme:x"], "axis": "accuracy"}


def test_criteria_are_read_and_written_again_with_their_unknown_keys():
    wait = {"criterion": " says to wait ", "points": -2.5}
    case = Case.from_dict(CASE | {"criteria": [GOOD, wait], "more": 1})
    assert [criterion.points for criterion in case.criteria] == [5, -2.5]
    assert case.extra == {"more": 1}
    assert case.to_dict()["criteria"] == [GOOD, wait | {"tags": []}]
    assert "criteria" not in Case.from_dict(CASE).to_dict()


def test_the_digest_for_other_judges_does_not_know_the_criteria():
    plain = Case.from_dict(CASE)
    more = Case.from_dict(CASE | {"criteria": [GOOD]})
    assert plain.digest == more.digest  # folders of verdicts from before go on
    other = Case.from_dict(CASE | {"criteria": [GOOD | {"points": 4}]})
    assert len({plain.checklist_digest, more.checklist_digest, other.checklist_digest}) == 3


@each_row("changes, said")
def test_bad_criteria_get_one_line_that_names_the_case(changes, said):
    entries = []
    for change in changes:
        criterion = GOOD | change
        entries.append({key: criterion[key] for key in criterion if criterion[key] != "ABSENT"})
    with refused("case 'c': ", said):
        Case.from_dict(CASE | {"criteria": entries})


def test_labels_of_entailment_are_met_or_not():
    base = {"case_id": "c", "model": "m", "criterion": "x", "annotator": "a"}
    labels = ("met", "not_met", "entailment", "neutral", "contradiction")
    met = [CriterionLabel.from_dict(base | {"label": label}).met for label in labels]
    assert met == [True, False, True, False, False]
    with pytest.raises(RecordError, match="must be one of met"):
        CriterionLabel.from_dict(base | {"label": "maybe"})


def test_only_a_verdict_on_criteria_has_a_checklist_in_its_line():
    plain = {"case_id": "c", "judge": "j", "rubric": "r@1", "order": [0], "valid": True}
    checklist = {"met": [True, None]}
    of_scores = Verdict.from_dict(plain)
    of_criteria = Verdict.from_dict(plain | {"checklist": checklist})
    assert "checklist" not in of_scores.to_dict()
    assert of_criteria.to_dict()["checklist"] == checklist
    assert of_criteria.digest != of_scores.digest
