"""Logs with everything in them that a log can have: what is read is compared with a loop over what was written."""

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
LISTS = st.lists(TEXTS, max_size=3)
VALUES = st.one_of(TEXTS, LISTS, st.none(), st.booleans(), st.integers(-1, 3), st.floats(), st.just({"text": ["a"]}))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def texts_in(value: object) -> str | None:
    """Return the reference that an author gave as a text or as a list of texts."""
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return "\n".join(each for each in values if each.strip()) or None


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


def by_id(cases: list[Case]) -> dict[tuple[str, int], Case]:
    place = [case.responses[0].extra for case in cases]
    return {(each["harness_id"], each["harness_epoch"]): case for each, case in zip(place, cases)}


LM_ROW = {"question": TEXTS, "reference": VALUES, "answer": st.one_of(TEXTS, st.none()), "other": VALUES}
LM_ROWS = st.lists(st.fixed_dictionaries(LM_ROW), max_size=4)


@settings(deadline=None)
@given(LM_ROWS)
def test_samples_of_lm_eval(rows: list[dict]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "samples_odd_task.jsonl"
        lines = []
        for number, row in enumerate(rows):
            doc = {name: row[name] for name in ("question", "reference", "other")}
            said = row["answer"]  # the harness makes texts of all that is said, and of the target
            line = {"doc_id": number, "doc": doc, "target": str(row["reference"]), "resps": [[said]], "more": 1}
            line |= {"arguments": {"gen_args_0": {"arg_0": row["question"], "arg_1": {"until": []}}}}
            lines += [line | {"filtered_resps": [said], "filter": name} for name in ("none", "word")]
        write(log, lines)
        if not rows:
            with pytest.raises(RecordError, match="the file is empty"):
                join_logs([f"m={log}"], LogArguments())
            return
        cases, counted, _ = join(log)
    assert counted == 2 * len(rows)
    seen, wanted = set(), {}
    for number, row in enumerate(rows):
        said = row["answer"]
        key = " ".join(row["question"].split())
        if isinstance(said, str) and row["question"].strip() and key not in seen:
            seen.add(key)
            wanted[str(number), 1] = said
    read_cases = by_id(cases)
    assert {key: case.responses[0].text for key, case in read_cases.items()} == wanted
    for (number, _), case in read_cases.items():
        row = rows[int(number)]
        assert case.question == row["question"]
        assert case.reference in (None, texts_in(row["reference"]))


PART = [{"type": "text", "text": "May I?"}, {"type": "image", "image": "x"}, {"type": "text", "text": " "}]
CONTENT = st.one_of(TEXTS, st.lists(st.sampled_from(PART), max_size=3))
MESSAGE = {"role": st.sampled_from(["system", "user", "assistant"]), "content": CONTENT}
MESSAGES = st.lists(st.fixed_dictionaries(MESSAGE), max_size=3)
SAMPLE = {
    "input": st.one_of(TEXTS, MESSAGES),
    "target": st.one_of(TEXTS, LISTS, st.none(), st.integers()),
    "said": st.lists(CONTENT, max_size=2),
}
MORE_OF_SAMPLE = {
    "error": st.sampled_from([None, {"message": "boom"}]),
    "invalidation": st.sampled_from([None, {"author": "x"}]),
    "limit": st.sampled_from([None, {"type": "token"}]),
    "choices": st.one_of(st.none(), LISTS),
    "messages": MESSAGES,
    "unknown": VALUES,
}
SAMPLES = st.lists(st.fixed_dictionaries(SAMPLE, optional=MORE_OF_SAMPLE), max_size=4)


def plain(content: str | list) -> str:
    texts = [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]
    return "\n".join(texts)


def texts_of(question: str | list[dict]) -> list[str]:
    return [question] if isinstance(question, str) else [each["content"] for each in question]


@settings(deadline=None)
@given(SAMPLES, st.sampled_from(["success", "error", "cancelled", None]))
def test_samples_of_inspect(samples: list[dict], status: str | None) -> None:
    written, wanted, seen, limited = [], {}, set(), 0
    for number, sample in enumerate(samples):
        choices = [{"message": {"role": "assistant", "content": content}} for content in sample["said"]]
        log_sample = {name: value for name, value in sample.items() if name != "said"}
        written.append(log_sample | {"id": number, "epoch": 1, "output": {"choices": choices}})
        prompt = sample["input"]
        asked = list(map(plain, texts_of(prompt)))
        roles = [] if isinstance(prompt, str) else [each["role"] for each in prompt]
        words = [" ".join(text.split()) for text in asked]
        key = list(zip(roles, words)) if len(asked) > 1 else words
        usable = choices and not any(map(sample.get, ("error", "invalidation", "choices")))
        limited += bool(usable and sample.get("limit"))
        if usable and any(text.strip() for text in asked) and str(key) not in seen:
            seen.add(str(key))
            wanted[str(number), 1] = (asked, plain(sample["said"][0]))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.json"
        content = {"status": status, "eval": {"model": "m"}, "samples": written}
        log.write_text(json.dumps(content), encoding="utf-8")
        cases, counted, notes = join(log)
    assert counted == len(samples)
    assert any("the run ended" in line for line in notes) == (status != "success") or not cases
    assert any(f"{limited} samples ended at a limit" in line for line in notes) == (limited > 0) or not cases
    read_cases = by_id(cases)
    assert {key: (texts_of(case.question), case.responses[0].text) for key, case in read_cases.items()} == wanted
    for (number, _), case in read_cases.items():
        assert case.reference == texts_in(samples[int(number)]["target"])


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


LM_LINE, INSPECT = (rows_of(__file__)[name] for name in ("a line of lm_eval", "a run of inspect"))


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
