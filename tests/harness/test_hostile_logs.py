"""Logs with everything in them that a log can have: what is read of a record, and what of several logs."""

import contextlib
import json
import re
import tempfile
from pathlib import Path

import pytest
from doubles.agreement_study import write
from doubles.word_judge import WordJudge
from factories import write_json
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import failed, judge_by_length
from tables import each_row, rows_of

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
        cases, notes = join_logs([f"m={log}"], LogArguments(**more), {})
    except RecordError as error:
        if not str(error).startswith("no answer: "):
            raise
        cases = []
        notes = str(error).removeprefix("no answer: ").split("; m=")
    assert f"answers of m: {len(cases)}" in notes[0]
    left_out = map(int, re.findall(r"left out: ([0-9]+) \(", notes[0]))
    return cases, len(cases) + sum(left_out), notes


LM_LINE, INSPECT = (rows_of(__file__)[name] for name in ("a line of lm_eval", "a run of inspect"))


def assert_read(log: Path, wanted: str | list) -> list[str]:
    """Assert that a log has one record, which is left out for a reason or is read so; return what is told."""
    cases, counted, notes = join(log)
    assert counted == 1
    if isinstance(wanted, str):
        assert cases == []
        assert wanted in notes[0]
        return notes
    question, text, reference, *told = wanted
    (case,) = cases
    (response,) = case.responses
    assert [case.question, response.text, case.reference] == [question, text, reference]
    for words in told:
        assert any(line.endswith(words) for line in notes)
    return notes


@each_row("changes, wanted")
def test_what_is_read_of_a_line_of_lm_eval(changes, wanted, tmp_path):
    notes = assert_read(write(tmp_path / "samples_x.jsonl", [LM_LINE | changes]), wanted)
    assert "the run ended" not in str(notes)


@each_row("changes, wanted")
def test_what_is_read_of_a_sample_of_inspect(changes, wanted, tmp_path):
    (sample,) = INSPECT["samples"]
    log = tmp_path / "run.json"
    write_json(log, INSPECT | {"samples": [sample | changes]})
    assert "the run ended as 'error'" in str(assert_read(log, wanted))


def line_asking(prompt: str) -> dict:
    return LM_LINE | {"arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}}


def places(content: object) -> list[tuple]:
    """Return the keys and numbers that lead to each value of a JSON content."""
    if not isinstance(content, dict | list):
        return [()]
    found = [()]
    for key in content if isinstance(content, dict) else range(len(content)):
        found += [(key, *rest) for rest in places(content[key])]
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
        write_json(file, content)
        cases, counted, _ = join(file)
        assert counted == 1 or path == []
        for case in cases:
            Case.from_dict(json.loads(json.dumps(case.to_dict())))


@each_row("fault")
def test_a_question_pattern_that_is_none_is_one_line(fault, tmp_path):
    log = write(tmp_path / "samples_x.jsonl", [LM_LINE])
    done = judge_by_length(tmp_path / "out", f"m={log}", question_pattern=fault)
    failed(done, "--question_pattern", repr(fault))
    assert not (tmp_path / "out").exists()


def test_a_group_of_the_pattern_may_be_empty_and_the_last_place_is_taken(tmp_path):
    prompts = ["Q: Older?\nA: x\n\nQ: Newer?\nA:", "Q: \nA:", "no question"]
    log = write(tmp_path / "samples_x.jsonl", map(line_asking, prompts))
    (case,), counted, _ = join(log, question_pattern=r"Q: (\w+\?)?")
    assert (case.question, counted) == ("Newer?", 3)


@each_row("prompt")
def test_a_prompt_in_a_chat_template_needs_a_pattern(prompt, tmp_path):
    log = write(tmp_path / "samples_x.jsonl", [LM_LINE, line_asking(prompt)])
    with pytest.raises(
        RecordError, match=r"samples_x.jsonl: .* chat template: give --question_pattern"
    ):
        join(log)
    cases, *_ = join(log, question_pattern=r"(Q\?)")
    assert [case.question for case in cases] == ["Q?"]
    with pytest.raises(RecordError, match="chat template: give a column 'question'"):
        JudgeReward(WordJudge())([prompt], ["Rest."])


def test_a_table_may_have_columns_that_logs_have(tmp_path):
    row = {"question": "Q?", "m": "Rest.", "eval": "good", "arguments": "none"}
    logs = [is_log(str(write(tmp_path / "x.jsonl", [each]))) for each in (row, LM_LINE)]
    assert logs == [False, True]
