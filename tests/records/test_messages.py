"""Conversations and preference rows as chat programs write them."""

import json
from pathlib import Path

import pytest
from programs import error_line, run_command

from automedeval import RecordError, read_cases

USER, BEST = {"role": "user", "content": "Is it safe?"}, {"role": "assistant", "content": "Avoid it."}
ANSWERS = [{"model": "m1", "text": "Avoid it."}, {"model": "m2", "text": "Safe."}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"drug":"x"}'}}
CALLED = '[calls look_up({"drug":"x"})]'
TOLD = [USER, {"role": "assistant", "content": CALLED}, {"role": "tool", "content": "{}", "tool_call_id": "c1"}, USER]
TOOLS = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "{}"},
    USER,
]
PARTS = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "Is it safe?"}, {"type": "image_url", "image_url": {"url": "data:"}}],
    }
]


def write(folder: Path, *rows: dict, name: str = "cases.jsonl") -> Path:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


@pytest.mark.parametrize(
    ("question", "read"),
    [
        ([USER], [USER]),
        (TOOLS, TOLD),
        (PARTS, [{"role": "user", "content": "Is it safe?\n[image_url]"}]),
        ([{"from": "human", "value": "Is it safe?"}], [USER]),
        ([{"role": "user", "content": [None, {"type": "text", "text": ""}, "Is it safe?"]}], [USER]),
        (
            [USER, {"role": "assistant", "content": None, "function_call": CALL["function"]}, USER],
            [USER, TOLD[1], USER],
        ),
    ],
)
def test_a_conversation_is_read_with_parts_and_tool_calls(question: list, read: list, tmp_path: Path) -> None:
    (case,) = read_cases(write(tmp_path, {"id": 7, "question": question, "responses": ANSWERS}))
    assert case.id == "7"
    assert case.question == read


@pytest.mark.parametrize(
    ("row", "question", "answers"),
    [
        (
            {"prompt": [USER], "chosen": [BEST], "rejected": [USER | {"role": "assistant"}]},
            "Is it safe?",
            ["Avoid it.", "Is it safe?"],
        ),
        ({"chosen": [USER, BEST], "rejected": [USER, BEST]}, "Is it safe?", ["Avoid it.", "Avoid it."]),
        (
            {"prompt": "Is it safe?", "chosen": BEST, "rejected": BEST, "messages": [USER, BEST]},
            "Is it safe?",
            ["Avoid it."] * 2,
        ),
        ({"prompt": "Is it safe?", "chosen": "Avoid it.", "rejected": "Safe."}, "Is it safe?", ["Avoid it.", "Safe."]),
        ({"messages": [USER, BEST], "model": "m1"}, "Is it safe?", ["Avoid it."]),
        (
            {"messages": [{"role": "system", "content": "Nurse."}, USER, BEST]},
            [{"role": "system", "content": "Nurse."}, USER],
            ["Avoid it."],
        ),
        (
            {"conversations": [{"from": "human", "value": "Is it safe?"}, {"from": "gpt", "value": "Avoid it."}]},
            "Is it safe?",
            ["Avoid it."],
        ),
        (
            {"question": "Is it safe?", "a": [{"type": "text", "text": "Avoid"}, {"type": "text", "text": "it."}]},
            "Is it safe?",
            ["Avoid\nit."],
        ),
        (
            {
                "question": "Is it safe?",
                "a": [{"type": "thinking", "thinking": "Hm."}, {"type": "output_text", "text": "No."}],
            },
            "Is it safe?",
            ["No."],
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": None, "refusal": "Ask her."}]},
            "Is it safe?",
            ["Ask her."],
        ),
    ],
)
def test_rows_of_messages_are_a_table_of_answers(
    row: dict, question: object, answers: list[str], tmp_path: Path
) -> None:
    (case,) = read_cases(write(tmp_path, row))
    assert case.question == question
    assert [response.text for response in case.responses] == answers


def test_texts_that_are_null_are_blank(tmp_path: Path) -> None:
    responses = [{"model": "m1", "text": "Avoid it."}, {"model": "m2", "text": None}]
    file = write(tmp_path, {"id": "1", "question": "Is it safe?", "responses": responses})
    with pytest.raises(RecordError, match="the text of a response is null: --blank lowest if"):
        list(read_cases(file))
    (lowest,), (skipped,) = (list(read_cases(file, blank=blank)) for blank in ("lowest", "skip"))
    assert [response.text for response in lowest.responses] == ["Avoid it.", ""]
    assert skipped.models == ["m1"]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (
            {"id": "1", "question": [USER, {"role": "assistant", "content": None}, USER], "responses": ANSWERS},
            "message 2 of 'question' has no text",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": 5}], "model": "m"},
            "message 2 of 'messages' has no text",
        ),
        (
            {"messages": [USER, {"role": "tool", "content": "4 mg"}]},
            "message 2 of 'messages', the last one, is neither",
        ),
        ({"chosen": [USER, BEST], "rejected": [BEST, BEST]}, "'chosen' and 'rejected' do not answer one question"),
        (
            {"id": "1", "question": [{"content": "Is it safe?"}], "responses": ANSWERS},
            "message 1 of 'question' is no object with a role",
        ),
    ],
)
def test_a_message_without_text_is_named(row: dict, error: str, tmp_path: Path) -> None:
    file = write(tmp_path, row)
    line = error_line(run_command("judge", file, "--judge", "baseline:longer text", "--output", tmp_path / "v"))
    assert line.startswith(f"error: {file}:1: ")
    assert error in line
