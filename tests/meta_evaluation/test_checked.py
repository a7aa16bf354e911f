"""The table of what was checked: the model with most answers with a number that differs comes first."""

from automedeval.meta_evaluation.checked import check_rows


def test_the_model_with_most_marked_answers_stands_first_and_those_that_were_not_read_last() -> (
    None
):
    def figures(share: float | None) -> dict:
        return {"answers": 10, "differing_answers": {"value": share, "low": None, "high": None}}

    shares = {"unread": None, "none": 0.0, "few": 0.1, "most": 0.9}
    rows = check_rows({model: figures(share) for model, share in shares.items()})
    assert [row["model"] for row in rows] == ["most", "few", "none", "unread"]
