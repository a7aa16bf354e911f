"""`automedeval judge` on runs that HELM wrote itself."""

import shutil
from pathlib import Path

from factories import read, read_json, write_json
from harness.make_logs import QUESTIONS
from programs import failed, judge_by_length, told
from tables import holds_all


def judge(output: Path, *runs: object):
    printed = told(judge_by_length(output, *runs))
    return printed, read(output / "cases.jsonl")


def test_runs_of_two_models_become_cases(helm_runs, tmp_path):
    # a folder, and the file in it
    printed, cases = judge(
        tmp_path / "out", helm_runs / "a", f"model-b={helm_runs / 'b' / 'scenario_state.json'}"
    )
    failure = "answers of model-b: 2; left out: 1 (no answer)"
    whole = "cases: 3, with an answer of all 2 models: 2"
    holds_all(printed, ("answers of acme/model-a: 3", failure, whole))
    assert [case["question"] for case in cases] == [question for question, _ in QUESTIONS]
    assert cases[0]["reference"] == "Acetaminophen lowers a fever.", (
        "the one that is tagged correct"
    )
    first = cases[0]["responses"]
    assert [each["model"] for each in first] == ["acme/model-a", "model-b"]
    assert first[0]["text"] == "model-a says: What lowers a fever?"
    assert first[0]["harness_id"] == "id2"


def test_of_several_trials_the_first_is_read(helm_runs, tmp_path):
    printed, cases = judge(tmp_path / "out", helm_runs / "several")
    assert (
        "answers of acme/model-a: 3; left out: 3 (a further trial with other examples: the first is read)"
        in printed
    )
    assert len(cases) == 3
    assert cases[0]["question"] == "What lowers a fever?", "without the examples of the prompt"


def test_multiple_choice_is_left_out(helm_runs, tmp_path):
    answers = "answers of acme/model-a: 0; left out:"
    choices = judge_by_length(tmp_path / "out", helm_runs / "choices")
    failed(choices, f"{answers} 3 (a multiple-choice question")
    apart = judge_by_length(tmp_path / "out", helm_runs / "apart")
    failed(apart, f"{answers} 6 (not a generated text)")


def test_a_run_that_is_not_whole_is_one_line(helm_runs, tmp_path):
    run = shutil.copytree(helm_runs / "a", tmp_path / "a")
    (run / "run_spec.json").unlink()
    done = judge_by_length(tmp_path / "out", run)
    failed(done, "no run_spec.json beside it: not a whole run of HELM")


def test_a_perturbed_question_is_left_out(helm_runs, tmp_path):
    run = shutil.copytree(helm_runs / "a", tmp_path / "a")
    state = read_json(run / "scenario_state.json")
    state["request_states"][1]["instance"]["perturbation"] = {"name": "typos"}
    write_json(run / "scenario_state.json", state)
    printed, _ = judge(tmp_path / "out", run)
    assert "left out: 1 (the question is perturbed)" in printed
