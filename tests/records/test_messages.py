"""Conversations and preference rows as chat programs write them."""

import json
import re
from pathlib import Path

import pytest
from programs import error_line, run_command
from tables import rows_of

from automedeval import RecordError, read_cases

ROWS = rows_of(__file__)


def write(folder: Path, *rows: dict, name: str = "cases.jsonl") -> Path:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


@pytest.mark.parametrize(("question", "read"), ROWS["test_a_conversation_is_read_with_parts_and_tool_calls"])
def test_a_conversation_is_read_with_parts_and_tool_calls(question: list, read: list, tmp_path: Path) -> None:
    (case,) = read_cases(write(tmp_path, {"id": 7, "question": question, "responses": ROWS["messages"][-1]}))
    assert case.id == "7"
    assert case.question == read


@pytest.mark.parametrize(("row", "question", "answers"), ROWS["test_rows_of_messages_are_a_table_of_answers"])
def test_rows_of_messages_are_a_table_of_answers(row: dict, question: object, answers: list[str], tmp_path: Path):
    (case,) = read_cases(write(tmp_path, row))
    assert case.question == question
    assert [response.text for response in case.responses] == answers
    held = re.search("thinking|tool_|function_call", json.dumps(row)) is not None
    assert any("thoughts" in response.extra for response in case.responses) == held


def test_texts_that_are_null_are_blank(tmp_path: Path) -> None:
    responses = [{"model": "m1", "text": "Avoid it."}, {"model": "m2", "text": None}]
    file = write(tmp_path, {"id": "1", "question": "Is it safe?", "responses": responses})
    with pytest.raises(RecordError, match="the text of a response is null: --blank lowest if"):
        list(read_cases(file))
    (lowest,), (skipped,) = (list(read_cases(file, blank=blank)) for blank in ("lowest", "skip"))
    assert [response.text for response in lowest.responses] == ["Avoid it.", ""]
    assert skipped.models == ["m1"]


@pytest.mark.parametrize(("row", "error"), ROWS["test_a_message_without_text_is_named"])
def test_a_message_without_text_is_named(row: dict, error: str, tmp_path: Path) -> None:
    file = write(tmp_path, row)
    line = error_line(run_command("judge", file, "--judge", "baseline:longer text", "--output", tmp_path / "v"))
    assert line.startswith(f"error: {file}:1: ")
    assert error in line
