"""The table of what was checked: the model with most answers with a number that differs comes first."""

import pytest
from doubles.agreement_study import case_of

from automedeval import Case
from automedeval.meta_evaluation.checked import check_rows, measure
from automedeval.records import CheckedResponse


def test_the_model_with_most_marked_answers_stands_first_and_those_that_were_not_read_last():
    shares = {"unread": None, "none": 0.0, "few": 0.1, "most": 0.9}
    figures = {
        model: {"value": share, "low": None, "high": None, "n": 10}
        for model, share in shares.items()
    }
    rows = check_rows(
        {model: {"answers": 10, "differing_answers": each} for model, each in figures.items()}
    )
    assert [row["model"] for row in rows] == ["most", "few", "none", "unread"]


def test_copies_of_cases_in_one_cluster_leave_the_interval_as_it_is():
    of_answer = {"a": "5 mg"}
    cases, checked = [], []
    for number in range(24):
        case = case_of(f"c{number}", "How much?", of_answer)
        cases.append(Case.from_dict(case | {"cluster": number % 8}))
        differs = ({},) * (number % 8 < 3)
        checked.append(CheckedResponse(f"c{number}", "a", "reference", differs))
    figures = (measure(cases[:many], checked[:many])["a"] for many in (8, 24))
    (low, high), ends = (
        [each["differing_answers"][end] for end in ("low", "high")] for each in figures
    )
    assert ends == pytest.approx([low, high])
