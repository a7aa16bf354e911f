"""Data sets in, data sets and pandas tables out, beside the verdicts that the same judge gives on the same cases."""

from pathlib import Path

import pytest
from datasets import Dataset
from doubles.tiny_model import build_tiny_model
from tables import rows_of

from automedeval import RecordError, Verdict, Verdicts, judge_dataset, load_judge

ROWS = rows_of(__file__)["rows"]


def test_a_data_set_gets_the_scores_of_the_verdicts() -> None:
    judge = load_judge("baseline:longer text")
    scored = judge_dataset(judge, Dataset.from_dict(ROWS), blank="skip")
    assert scored.column_names == [*ROWS, "model_a_score", "model_b_score", "valid", "rationale", "error"]
    assert (scored["model_a_score"][:], scored["model_b_score"][:]) == ([4.0, 3.0, None], [1.0, None, None])
    assert scored["valid"][:] == [True, True, None]
    only = judge_dataset(judge, Dataset.from_dict(ROWS), ["model_b"], blank="lowest")
    assert "model_a_score" not in only.column_names
    assert only["model_b_score"][:] == [1.0, 0.0, 0.0]


def test_an_answer_is_read_as_those_of_files_are() -> None:
    said = {"a": "Take it.", "b": "<think>\nHm, no.\n</think>\n\nTake it.", "c": [{"type": "text", "text": "Take it."}]}
    rows = {name: [cell] for name, cell in ({"question": "What helps?"} | said).items()}
    scored = judge_dataset(load_judge("baseline:longer text"), Dataset.from_dict(rows))
    assert scored["a_score"][:] == scored["b_score"][:] == scored["c_score"][:] == [2.0]


def test_faults_are_one_line(tmp_path: Path) -> None:
    judge = load_judge("baseline:longer text")
    for rows, options, fault in (
        ({"a": ["b"]}, {}, "no column 'question'"),
        ({"question": ["b"]}, {}, "no column with responses"),
        ({"question": ["b"], "a": [3]}, {}, "row 0: 'a' must be text, not 3"),
        (ROWS, {"responses": ["model_c"]}, "no column 'model_c'"),
        (ROWS | {"valid": [1, 2, 3]}, {"responses": ["model_a"], "blank": "skip"}, "a column 'valid' already"),
        (ROWS, {}, r"3 of 6 answers are blank"),
        (ROWS, {"blank": "drop"}, "blank cells are lowest or skip, not 'drop'"),
    ):
        with pytest.raises(RecordError, match=fault):
            judge_dataset(judge, Dataset.from_dict(rows), **options)
    pairs = load_judge(str(build_tiny_model(tmp_path / "model")), "medical_pairwise", {"max_new_tokens": 4})
    with pytest.raises(RecordError, match="gives choices, and a table needs scores"):
        judge_dataset(pairs, Dataset.from_dict(ROWS), blank="skip")


def test_verdicts_are_a_table_with_a_row_for_each_response() -> None:
    models = {"models": ["a", "b"]}
    scores = {"scores": (2, 5), "expected_scores": (2.5, 4.5)}
    table = Verdicts(
        [
            Verdict("1", "j", "r@1", (1, 0), valid=True, rationale="R", extra=models, **scores),
            Verdict("2", "j", "r@1", (0, 1), error="not readable", extra=models),
            Verdict("3", "k", "p@1", (0, 1), ("a", "b"), valid=True, choices={"best": "tie"}, extra=models),
        ]
    ).to_pandas()
    slots = table[["case_id", "model", "slot"]].values.tolist()
    assert slots == [["1", "b", 0], ["1", "a", 1], ["2", "a", 0], ["2", "b", 1], ["3", "a", 0], ["3", "b", 1]]
    assert table.score.tolist()[:2] == [5, 2]
    assert table.groupby("case_id").expected_score.mean().round(3).to_dict()["1"] == 3.5
    assert table[~table.valid].score.isna().all()
    assert table.choice_best.dropna().tolist() == ["tie", "tie"]
    assert Verdicts().to_pandas().empty
