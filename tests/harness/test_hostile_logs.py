"""Logs with everything in them that a log can have: what is read of a record, and what of several logs."""

import contextlib
import json
import re
import tempfile
from pathlib import Path

import pytest
from doubles.agreement_study import write
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import error_line, run_command
from tables import rows_of

from automedeval import Case, RecordError
from automedeval.harness.joining import LogArguments, join_logs
from automedeval.harness.logs import is_log

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
READ = [(kind, *row) for kind in ("lm_eval", "inspect") for row in rows_of(__file__)[f"what is read of {kind}"]]


@pytest.mark.parametrize(("kind", "changes", "wanted"), READ)
def test_what_is_read_of_a_record(kind: str, changes: dict, wanted: list | str, tmp_path: Path) -> None:
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
        assert (case.question, case.responses[0].text, case.reference) == (question, text, reference)
        assert all(any(line.endswith(each) for line in notes) for each in told)


def texts_of(question: str | list[dict]) -> list[str]:
    return [question] if isinstance(question, str) else [each["content"] for each in question]


ASKED = st.lists(st.tuples(*map(st.sampled_from, ["abcd", ["", " "], [None, "r", "s"]])), max_size=6)


@settings(deadline=None)
@given(st.lists(ASKED, min_size=2, max_size=3), st.booleans())
def test_logs_of_several_models(logs: list[list[tuple]], chat: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for model, rows in enumerate(logs):
            samples = []
            for number, (key, blank, reference) in enumerate(rows):
                messages = [{"role": "user", "content": f"{blank}Q {key}?"}]
                said = {"choices": [{"message": {"content": f"{model} says {number}"}}]}
                asked = {"input": messages if chat and model else f"Q {blank}{key}?", "target": reference or ""}
                samples.append({"id": number, "epoch": 1, **asked, "output": said})
            content = {"status": "success", "eval": {"model": f"m{model}"}, "samples": samples}
            (Path(folder) / f"{model}.json").write_text(json.dumps(content), encoding="utf-8")
        if not any(logs):
            return
        cases, notes = join_logs([f"{folder}/{model}.json" for model in range(len(logs))], LogArguments())
    wanted: dict[str, dict[str, str]] = {}
    references: dict[str, list[str]] = {}
    repeated = [0] * len(logs)
    for model, rows in enumerate(logs):
        for number, (key, _, reference) in enumerate(rows):
            if f"m{model}" in wanted.setdefault(key, {}):
                repeated[model] += 1
                continue
            wanted[key][f"m{model}"] = f"{model} says {number}"
            references.setdefault(key, []).extend([reference] if reference else [])
    case_of = {texts_of(case.question)[0].split()[1][0]: case for case in cases}
    assert {key: {r.model: r.text for r in case.responses} for key, case in case_of.items()} == wanted
    first = {key: own[0] if own else None for key, own in references.items()}
    assert {key: case.reference for key, case in case_of.items()} == first
    full = sum(len(answers) == len(logs) for answers in wanted.values())
    assert f"{len(wanted)} cases, {full} with an answer of all {len(logs)} models" in notes
    differ = sum(len(set(own)) > 1 for own in references.values())
    assert (f"{differ} cases differ in 'reference' between the files: the first is taken" in notes) == (differ > 0)
    for model, count in enumerate(repeated):
        (line,) = [each for each in notes if f"answers of m{model}" in each]
        assert (f"left out: {count} (the question is in the log before)" in line) == (count > 0)
        alone = sum(list(answers) == [f"m{model}"] for answers in wanted.values())
        assert (f"only m{model} has {alone} of them" in notes) == (alone > 0)


def places(content: object) -> list[tuple]:
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [(), *((key, *rest) for key, value in inner for rest in places(value))]


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from([("samples_x.jsonl", LM_LINE), ("run.json", INSPECT)]), JSON)
def test_a_log_with_any_value_in_any_place_is_read_or_refused_in_a_line(data, log: tuple, value: object) -> None:
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
def test_a_question_pattern_that_is_none_is_one_line(fault: str, tmp_path: Path) -> None:
    log = write(tmp_path / "samples_x.jsonl", [LM_LINE])
    words = ("--judge", "baseline:longer text", "--output", tmp_path / "out", "--question_pattern", fault)
    message = error_line(run_command("judge", f"m={log}", *words))
    assert "--question_pattern" in message
    assert repr(fault) in message
    assert not (tmp_path / "out").exists()


def test_a_group_of_the_pattern_may_be_empty_and_the_last_place_is_taken(tmp_path: Path) -> None:
    prompts = ["Q: Older?\nA: x\n\nQ: Newer?\nA:", "Q: \nA:", "no question"]
    asked = [{"gen_args_0": {"arg_0": each, "arg_1": {}}} for each in prompts]
    lines = [LM_LINE | {"doc_id": number, "arguments": each} for number, each in enumerate(asked)]
    cases, counted, _ = join(write(tmp_path / "samples_x.jsonl", lines), question_pattern=r"Q: (\w+\?)?")
    assert [case.question for case in cases] == ["Newer?"]
    assert counted == 3


def test_a_model_without_a_name_is_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "run.json"
    log.write_text(json.dumps(INSPECT | {"eval": {"model": None}}))
    with pytest.raises(RecordError, match="give NAME="):
        join_logs([str(log)], LogArguments())


def test_a_table_may_have_columns_that_logs_have(tmp_path: Path) -> None:
    row = {"question": "Q?", "m": "Rest.", "eval": "good", "arguments": "none"}
    logs = [is_log(str(write(tmp_path / "x.jsonl", [each]))) for each in (row, LM_LINE)]
    assert logs == [False, True]
