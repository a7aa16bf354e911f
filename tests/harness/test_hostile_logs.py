"""Logs with everything in them that a log can have: what is read of a record, and what of several logs."""

import contextlib
import json
import re
import tempfile
from pathlib import Path

import pytest
from doubles.agreement_study import write
from doubles.word_judge import WordJudge
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import error_line, run_command
from tables import rows_of

from automedeval import Case, RecordError
from automedeval.harness.joining import LogArguments, join_logs
from automedeval.harness.logs import is_log
from automedeval.harness.rewards import JudgeReward

ODD = ["", " ", "None", "nan", "3", "['a']", "Rest.", "A", "AB", "\x00", "٣"]
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(ODD))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def join(log: Path, **more: object) -> tuple[list[Case], int, list[str]]:
    """Return the cases of a log, the number of its records that the lines count, and the lines."""
    try:
        cases, notes = join_logs([f"m={log}"], LogArguments(**more))
    except RecordError as error:
        if not str(error).startswith("no answer: "):
            raise
        cases, notes = [], str(error).removeprefix("no answer: ").split("; m=")
    (kept,) = re.findall(r"([0-9]+) answers of m", notes[0])
    left_out = map(int, re.findall(r"left out: ([0-9]+) \(", notes[0]))
    assert int(kept) == len(cases)
    return cases, int(kept) + sum(left_out), notes


LM_LINE, INSPECT = (rows_of(__file__)[name] for name in ("a line of lm_eval", "a run of inspect"))
READ = [
    (kind, *row)
    for kind in ("lm_eval", "inspect")
    for row in rows_of(__file__)[f"what is read of {kind}"]
]


@pytest.mark.parametrize(("kind", "changes", "wanted"), READ)
def test_what_is_read_of_a_record(kind, changes, wanted, tmp_path):
    if kind == "lm_eval":
        log = write(tmp_path / "samples_x.jsonl", [LM_LINE | changes])
    else:
        log, sample = tmp_path / "run.json", INSPECT["samples"][0] | changes
        log.write_text(json.dumps(INSPECT | {"samples": [sample]}), encoding="utf-8")
    cases, counted, notes = join(log)
    assert counted == 1
    assert any("the run ended as 'error'" in line for line in notes) == (kind == "inspect")
    if isinstance(wanted, str):
        assert (cases, wanted in notes[0]) == ([], True)
    else:
        question, text, reference, *told = wanted
        (case,) = cases
        assert (case.question, case.responses[0].text, case.reference) == (
            question,
            text,
            reference,
        )
        assert all(any(line.endswith(each) for line in notes) for each in told)


def places(content: object) -> list[tuple]:
    """Return the keys and numbers that lead to each value of a JSON content."""
    if not isinstance(content, dict | list):
        return [()]
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    found = [()]
    for key, value in inner:
        found += [(key, *rest) for rest in places(value)]
    return found


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from([("samples_x.jsonl", LM_LINE), ("run.json", INSPECT)]), JSON)
def test_a_log_with_any_value_in_any_place_is_read_or_refused_in_a_line(data, log, value):
    name, good = log
    content = json.loads(json.dumps(good))
    *path, last = data.draw(st.sampled_from([place for place in places(content) if place]))
    holder = content
    for key in path:
        holder = holder[key]
    holder[last] = value
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(RecordError):
        file = Path(folder) / name
        file.write_text(json.dumps(content), encoding="utf-8")
        cases, counted, _ = join(file)
        assert counted == 1 or path == []
        for case in cases:
            Case.from_dict(json.loads(json.dumps(case.to_dict())))


@pytest.mark.parametrize("fault", ["Question:", "Question: (.*", "(?P<x", "(?:Question)"])
def test_a_question_pattern_that_is_none_is_one_line(fault, tmp_path):
    log = write(tmp_path / "samples_x.jsonl", [LM_LINE])
    words = (
        "--judge",
        "baseline:longer text",
        "--output",
        tmp_path / "out",
        "--question_pattern",
        fault,
    )
    message = error_line(run_command("judge", f"m={log}", *words))
    assert "--question_pattern" in message
    assert repr(fault) in message
    assert not (tmp_path / "out").exists()


def test_a_group_of_the_pattern_may_be_empty_and_the_last_place_is_taken(tmp_path):
    prompts = ["Q: Older?\nA: x\n\nQ: Newer?\nA:", "Q: \nA:", "no question"]
    asked = [{"gen_args_0": {"arg_0": each, "arg_1": {}}} for each in prompts]
    lines = [LM_LINE | {"doc_id": number, "arguments": each} for number, each in enumerate(asked)]
    cases, counted, _ = join(
        write(tmp_path / "samples_x.jsonl", lines), question_pattern=r"Q: (\w+\?)?"
    )
    assert [case.question for case in cases] == ["Newer?"]
    assert counted == 3


@pytest.mark.parametrize(
    "prompt", rows_of(__file__)["test_a_prompt_in_a_chat_template_needs_a_pattern"]
)
def test_a_prompt_in_a_chat_template_needs_a_pattern(prompt, tmp_path):
    line = LM_LINE | {"arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}}
    log = write(tmp_path / "samples_x.jsonl", [LM_LINE, line])
    with pytest.raises(
        RecordError, match=r"samples_x.jsonl: .* chat template: give --question_pattern"
    ):
        join(log)
    cases, *_ = join(log, question_pattern=r"(Q\?)")
    assert [case.question for case in cases] == ["Q?"]
    with pytest.raises(RecordError, match="chat template: give a column 'question'"):
        JudgeReward(WordJudge())([prompt], ["Rest."])


def test_a_model_without_a_name_is_asked_for(tmp_path):
    log = tmp_path / "run.json"
    log.write_text(json.dumps(INSPECT | {"eval": {"model": None}}))
    with pytest.raises(RecordError, match="give NAME="):
        join_logs([str(log)], LogArguments())


def test_a_table_may_have_columns_that_logs_have(tmp_path):
    row = {"question": "Q?", "m": "Rest.", "eval": "good", "arguments": "none"}
    logs = [is_log(str(write(tmp_path / "x.jsonl", [each]))) for each in (row, LM_LINE)]
    assert logs == [False, True]
