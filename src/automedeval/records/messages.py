"""Read conversations as messages of OpenAI's form: with parts, tool calls and no text, and rows of preferences."""

import ast
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

from automedeval.records.errors import RecordError

Message = dict[str, str]  # with a role and a content
TEXTS = ("text", "output_text", "input_text")  # parts
HIDDEN = ("thinking", "redacted_thinking", "reasoning", "tool_use", "server_tool_use")  # parts
CALLS = ("tool_calls", "function_call")
THOUGHTS = ("analysis", "commentary")  # channels of Harmony
ASKED = {"question", "prompt"}
# Stands for an assistant's thought or call; the reader of cases takes it out of answers, and counts it.
REMOVED = "<think></think>"
# How a text begins that is an object or a list of objects, in JSON or as Python writes it into a table
OBJECT = re.compile(r"\s*\[?\s*\{")


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages; {"role": "physician", "name": …} is data beside the answers."""
    messages = value if isinstance(value, list) else []
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        return False
    return any({"content", *CALLS} & {*message} for message in messages)


def as_messages(value: Any) -> Any:
    """Return the messages or the parts that a cell or a text in it has, one message as a list; another value as it is."""
    content = _read(value)
    if is_conversation([content]) and content["role"] in ("user", "assistant"):
        return [content]
    return content if is_conversation(content) or _is_parts(content) else value


def _read(value: Any) -> Any:
    """Return what a text that begins as an object is, in JSON or as Python writes it; else the value."""
    if isinstance(value, str) and OBJECT.match(value):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(value.strip())
    return value


def as_turns(question: Any, role: str = "user") -> list[Message]:
    """Return a question as messages: a text is one of this role."""
    return [{"role": role, "content": question}] if isinstance(question, str) else question


def read_conversation(messages: Sequence[dict], name: str) -> list[Message]:
    """Return messages as `{"role", "content"}`, each with a text; other keys with texts stay, `REMOVED` stands for calls.

    Messages that are thoughts are left out. RecordError, which names the message of `name`, for one without text.
    """
    read = _messages(messages, name)
    return [message for message in read if message.get("channel") not in THOUGHTS]


def _messages(messages: Sequence[dict], name: str) -> list[Message]:
    numbered = enumerate(messages, 1)
    return [_message(message, f"message {number} of {name!r}") for number, message in numbered]


def _message(message: dict, place: str) -> Message:
    """Return the texts of a message; `REMOVED` stands for its thought and its calls."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RecordError(f"{place} is no object with a role and a content")
    content = message.get("content")
    if content is None:
        content = message.get("refusal")
    text = _parts(content) if isinstance(content, list) else content
    calls = [REMOVED for key in CALLS if message.get(key)]
    if not isinstance(text or "", str) or (text is None and not calls):
        raise RecordError(f"{place} has no text")
    texts = {key: value for key, value in message.items() if isinstance(value, str)}
    is_thought = message.get("channel") in THOUGHTS
    return texts | {"content": REMOVED if is_thought else "\n".join(filter(None, [text, *calls]))}


def _parts(parts: list) -> str:
    """Return the texts of a content's parts; of another part, such as an image, its kind in brackets."""
    return "\n".join(filter(None, map(_part, parts)))


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part or "")
    kind = str(part.get("type", "part"))
    if kind in HIDDEN or kind.endswith("tool_result"):
        return REMOVED
    return str(part.get("text", part.get("refusal", f"[{kind}]")) or "")


def answer_text(value: Any, name: str) -> Any:
    """Return the text of an answer that is given as messages, a message or parts; another value as it is.

    RecordError, which has the name, if the assistant did not write the last message, or wrote several after another.
    """
    if isinstance(value, str) and not OBJECT.match(value):
        return value
    value = as_messages(value)
    if is_conversation(value):
        _, role, text = _last_turn(value, name)
        if role != "assistant":
            raise RecordError(
                f"{name!r}: the last message is not the assistant's; its role is {role!r}"
            )
        return text
    return _parts(value) if _is_parts(value) else value


def _last_turn(messages: list[dict], name: str) -> tuple[list[dict], str, str]:
    """Return the messages before the assistant's last turn, whose the last message is, and the text of that turn.

    RecordError if several messages of that turn have a text that is no thought.
    """
    read = _messages(messages, name)
    turn = list(takewhile(lambda message: message["role"] == "assistant", reversed(read)))
    texts = [message["content"] for message in reversed(turn)]
    if sum(bool(text.replace(REMOVED, "").strip()) for text in texts) > 1:
        raise RecordError(
            f"{name!r} ends with several messages of the assistant: leave the one that is the answer"
        )
    return messages[: len(read) - len(turn)], read[-1]["role"], "\n".join(texts)


def objects_in(value: Any) -> list[dict]:
    """Return the objects of a list; nothing of another value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _is_parts(value: Any) -> bool:
    return any(part.get("type") in TEXTS for part in objects_in(value))


def without_messages(row: dict) -> dict:
    """Return a row of a table with texts in the place of messages, of which each cell has a list or one.

    `messages` are the question and, where an assistant has the last word, the answer to it; of other columns the last
    message is the answer.
    RecordError for messages without a text, and where it is unclear what they are.
    """
    row = {name: as_messages(value) for name, value in row.items()}
    asked = ASKED & set(row)
    if asked and {"chosen", "rejected"} <= set(row):  # a conversation has one of them again
        row.pop("messages", None)
    texts = {}
    for name, value in row.items():
        if not is_conversation(value):
            texts[name] = answer_text(value, name)
            continue
        before, role, text = _last_turn(value, name)
        if name == "messages" and not asked:
            texts["question"] = _question(before, name)
            if role == "assistant" and "answer" in row:
                raise RecordError(
                    f"{name!r} ends with an answer, and there is 'answer' beside it: leave one"
                )
            if role == "assistant":
                texts["answer"] = text
        elif name in ASKED or role == "user":
            texts[name] = _question(value, name)
        else:
            texts[name] = answer_text(value, name)
    return texts


def _question(messages: list[dict], name: str) -> str | list[Message]:
    read = read_conversation(messages, name)
    is_text = len(read) == 1 and read[0]["role"] == "user"
    return read[0]["content"] if is_text else read
