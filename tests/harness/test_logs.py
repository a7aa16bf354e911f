"""`automedeval judge` on logs that the harnesses wrote themselves."""

from factories import verdicts_in, write_json
from programs import failed, judge_by_length, succeeded, told
from tables import rows_of

ROWS = rows_of(__file__)


def test_a_run_that_ended_with_an_error_is_told(logs, tmp_path):
    told(
        judge_by_length(tmp_path / "out", f"model-a={logs['error']}"),
        "answers of model-a: 2; left out: 1 (no answer)",
        "the run ended as 'error': samples may be missing, the log has 3",
    )
    assert "the run ended" not in told(
        judge_by_length(tmp_path / "whole", f"model-a={logs['json']}")
    )


def test_of_lm_eval_the_model_s_own_text_is_read_once(logs, tmp_path):
    done = judge_by_length(tmp_path / "out", f"m={logs['lm']}")
    told(done, "answers of m: 3; left out: 3 (the same answer, by a further filter)")


def test_a_packed_log_of_inspect_needs_inspect(logs, tmp_path):
    failed(judge_by_length(tmp_path, logs["eval"]), "needs inspect_ai")


def test_the_outputs_of_alpaca_eval_are_a_table(tmp_path):
    # Not written by the library: its documented format.
    file = tmp_path / "outputs.json"
    write_json(file, ROWS["outputs of alpaca_eval"])
    told(judge_by_length(tmp_path / "out", file), "not read: dataset; rows: 3, cases: 2")
    models = [verdict.models for verdict in verdicts_in(tmp_path / "out")]
    assert models == [("one", "two"), ("one",)]


def test_other_cases_than_those_of_the_folder_stop(tmp_path):
    one, two, none = (tmp_path / f"{name}.json" for name in ("one", "two", "none"))
    write_json(one, ROWS["a run"])
    two.write_text(one.read_text().replace("one", "two"), encoding="utf-8")
    succeeded(judge_by_length(tmp_path / "out", one))
    failed(judge_by_length(tmp_path / "out", two), f"holds other cases than {two}")
    failed(judge_by_length(tmp_path / "out", none), "none.json: No such file")
