"""`automedeval judge` on logs that the harnesses wrote of tasks that are seldom met.

What is read is compared with a loop over the rows that the tasks were made of: nothing is a reference that its author did not
give, and no sample is lost without a line that counts it.
"""

import math
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from doubles.agreement_study import read
from doubles.endpoint import EndpointDouble, answer
from factories import read_json
from harness.make_logs import ROWS
from programs import error_line, run_command, succeeded

from automedeval.harness.logs import MULTIPLE_CHOICE, NO_TEXT

JUDGE = ("--judge", "baseline:longer text")
UNKNOWN = "have no reference, because it cannot be told what their target stands for"


def judged(log: Path, output: Path, *more: object) -> tuple[list[dict], str]:
    done = succeeded(run_command("judge", f"m={log}", *JUDGE, "--output", output, *more))
    return read(output / "cases.jsonl"), done.stdout


def text_of(case: dict) -> str:
    return case["responses"][0]["text"]


def by_id(cases: list[dict]) -> dict[str, dict]:
    return {case["responses"][0]["harness_id"]: case for case in cases}


def samples(logs: dict, task: str) -> Path:
    (file,) = logs["odd"].glob(f"lm_eval/*/samples_{task}_20*.jsonl")
    return file


# Of each task the rows whose reference can be told from what the harness wrote, and what their author gave.
GIVEN: dict[str, tuple[Callable[[dict], str | None], list[int]]] = {
    "template": (lambda row: row["reference"], [0]),
    "sentence": (lambda row: f"It is {row['reference']}", [0, 3, 4]),
    **dict.fromkeys(("list", "index"), (str, [])),
}


@pytest.mark.parametrize("task", GIVEN)
def test_nothing_is_a_reference_that_its_author_did_not_give(task, logs, tmp_path):
    reference, told = GIVEN[task]
    wanted = [reference(row) if number in told else None for number, row in enumerate(ROWS)]
    cases, printed = judged(samples(logs, task), tmp_path / "out")
    assert [case["question"] for case in cases] == [
        f"Question: {row['question']}\nAnswer:" for row in ROWS
    ]
    assert [case["reference"] for case in cases] == wanted
    counted = int((re.search(f"([0-9]+) answers {UNKNOWN}", printed) or [0, "0"])[1])
    empty = sum(not line["target"] for line in read(samples(logs, task)))
    assert counted == wanted.count(None) - empty, printed


def test_the_question_of_a_prompt_with_examples_is_its_last(logs, tmp_path):
    pattern = ("--question_pattern", r"Question: (.*)\nAnswer:")
    cases, printed = judged(samples(logs, "examples"), tmp_path / "out", *pattern)
    assert "5 answers of m" in printed
    assert [case["question"] for case in cases] == [row["question"] for row in ROWS]
    for case, row in zip(cases, ROWS):
        assert row["question"] in text_of(case), "the answer is to this question"


def test_likelihoods_and_choices_are_no_answers(logs, tmp_path):
    tasks = dict.fromkeys(("rolling", "choices"), NO_TEXT) | dict.fromkeys(
        ("letter", "letter_in_brackets"), MULTIPLE_CHOICE
    )
    told = {f"m={samples(logs, task)}": reason for task, reason in tasks.items()} | {
        inspect_log(logs, "choices"): MULTIPLE_CHOICE
    }
    for log, reason in told.items():
        line = error_line(run_command("judge", log, *JUDGE, "--output", tmp_path / "out"))
        assert f"({reason})" in line


def test_repeats_and_further_filters_are_told(logs, tmp_path):
    lines = read(samples(logs, "repeats"))
    said = [each["resps"][0] for each in lines if each["filter"] == lines[0]["filter"]]
    cases, printed = judged(samples(logs, "repeats"), tmp_path / "two")
    assert [text_of(case) for case in cases] == [texts[0] for texts in said]
    assert "left out: 5 (the same answer, by a further filter)" in printed
    assert f"{sum(len(texts) - 1 for texts in said)} further answers" in printed


def test_a_chat_through_an_endpoint_is_read(harness, logs, tmp_path):
    def reply(body):
        last = body["messages"][-1]
        return answer(None if ROWS[3]["question"] in last["content"] else f"On {last['content']}")

    with EndpointDouble(reply) as endpoint:
        options = [
            "lm_eval",
            "run",
            "--model",
            "local-chat-completions",
            "--tasks",
            "examples",
            "--log_samples",
            "--apply_chat_template",
            "--fewshot_as_multiturn",
            "true",
            "--output_path",
            "log",
        ]
        options += ["--system_instruction", "Be kind.", "--include_path", logs["odd"] / "tasks"]
        options += ["--model_args", f"base_url={endpoint.url}/chat/completions,model=x"]
        harness("python", "-m", *options, cwd=tmp_path)
    (log,) = (tmp_path / "log").glob("*/samples_*.jsonl")
    cases, printed = judged(log, tmp_path / "out")
    assert len(cases) == len(ROWS), printed
    for case, row in zip(cases, ROWS):
        last = {"role": "user", "content": f"Question: {row['question']}\nAnswer:"}
        assert case["question"][0] == {"role": "system", "content": "Be kind."}
        assert case["question"][-1] == last
        assert text_of(case) == ("" if row is ROWS[3] else f"On {last['content']}")
    cases, printed = judged(log, tmp_path / "questions", "--question_pattern", "Question: (.*)")
    assert [case["question"] for case in cases] == [row["question"] for row in ROWS]


def inspect_log(logs: dict, name: str) -> Path:
    (file,) = (logs["odd"] / name).glob("*.json")
    return file


def test_what_a_sample_of_inspect_has_beside_its_answer_is_told(logs, tmp_path):
    cases, printed = judged(inspect_log(logs, "mixed"), tmp_path / "out")
    read_of = by_id(cases)
    texts = {name: text_of(case) for name, case in read_of.items()}
    answers = {
        "draft": "Rest.",
        "empty": "",
        "image": "Eczema.",
        "several": "First.",
        "parts": "It is 2.",
    }
    assert texts == answers, "the answer is what the solver made of the model's text"
    assert read_of["image"]["question"] == [{"role": "user", "content": "What rash is this?"}]
    assert read_of["empty"]["reference"] == "one\ntwo"
    assert read_of["parts"]["reference"] is None
    for line in (
        "left out: 1 (marked as invalid); left out: 1 (no answer); left out: 1 (the question has no text)",
        "2 questions have images or other parts that are not read",
        "1 further answers to a question of which the first is read",
        "5 answers of m, 2 with a reference",
    ):
        assert line in printed
    (case,), printed = judged(inspect_log(logs, "turns"), tmp_path / "turns")
    assert (case["question"], text_of(case)) == ("First?", "Two.")
    assert "1 samples went on after the first answer" in printed


@pytest.mark.parametrize(
    ("name", "values"),
    [("choices", {}), ("turns", {"1": 1}), ("mixed", {"draft": 1, "empty": 0, "parts": 3})],
)
def test_the_scorer_in_inspect_reads_the_same(harness, logs, tmp_path, name, values):
    """As many points as the answer has words; choices and questions without a text have no score."""
    options = "--scorer automedeval/judge --action append --output-file scored.json --display none"
    judge = ("-S", "judge=baseline:longer text")
    harness("inspect", "score", inspect_log(logs, name), *options.split(), *judge, cwd=tmp_path)
    log = read_json(tmp_path / "scored.json")
    scores = {str(sample["id"]): sample["scores"]["judge"] for sample in log["samples"]}
    assert {key: scores[key]["value"] for key in values} == values
    unscored = {
        key: score["explanation"] for key, score in scores.items() if math.isnan(score["value"])
    }
    if name == "choices":
        assert unscored == dict.fromkeys(scores, MULTIPLE_CHOICE)
    else:
        assert unscored == ({"image only": "the question has no text"} if name == "mixed" else {})


def test_a_file_that_is_no_log_is_one_line(harness_python, tmp_path):
    broken = tmp_path / "broken.eval"
    zipfile.ZipFile(broken, "w").close()
    command = [harness_python.parent / "automedeval", "judge", f"m={broken}", *JUDGE]
    line = error_line(subprocess.run(command, capture_output=True, text=True, cwd=tmp_path))
    assert "broken.eval" in line
