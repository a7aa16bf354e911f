"""The table of what was checked: the model with most answers with a number that differs comes first."""

from automedeval.meta_evaluation.checked import check_rows


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
