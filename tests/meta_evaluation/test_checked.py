"""The table of what was checked: the model with most contradicted answers comes first."""

from automedeval.meta_evaluation.checked import LABELS, UNREAD, check_rows


def test_a_model_without_a_contradicted_answer_stands_after_those_with_one_whether_or_not_it_could_be_read() -> (
    None
):
    def figures(share: float | None) -> dict:
        estimate = {"value": share, "low": None, "high": None, "n": 10}
        counts = dict.fromkeys(("answers", "statements", *LABELS, UNREAD), 10)
        return counts | {"contradicted_answers": estimate}

    shares = {"unread": None, "none": 0.0, "few": 0.1, "most": 0.9}
    rows = check_rows({model: figures(share) for model, share in shares.items()})
    assert [row["model"] for row in rows] == ["most", "few", "none", "unread"]
