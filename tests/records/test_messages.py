"""Conversations and preference rows as chat programs write them."""

import json
import re

from factories import write
from programs import failed, judge_by_length
from tables import each_row, rows_of

from automedeval import read_cases


@each_row("question, read")
def test_a_conversation_is_read_with_parts_and_tool_calls(question, read, tmp_path):
    row = {"id": 7, "question": question, "responses": rows_of(__file__)["messages"][-1]}
    (case,) = read_cases(write(tmp_path / "cases.jsonl", [row]))
    assert case.id == "7"
    assert case.question == read


@each_row("row, question, answers")
def test_rows_of_messages_are_a_table_of_answers(row, question, answers, tmp_path):
    (case,) = read_cases(write(tmp_path / "cases.jsonl", [row]))
    assert case.question == question
    assert [response.text for response in case.responses] == answers
    held = re.search("thinking|tool_|function_call|analysis", json.dumps(row)) is not None
    assert any("thoughts" in response.extra for response in case.responses) == held


@each_row("row, error")
def test_a_message_without_text_is_named(row, error, tmp_path):
    file = write(tmp_path / "cases.jsonl", [row])
    line = failed(judge_by_length(tmp_path / "v", file), error)
    assert line.startswith(f"error: {file}:")
