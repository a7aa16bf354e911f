"""Read conversations as messages of OpenAI's form: with parts, tool calls and no text, and rows of preferences."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

from automedeval.records.errors import RecordError

Message = dict[str, str]  # with a role and a content
ROLES = {"user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant"}
TEXTS, HIDDEN = (
    ("text", "output_text", "input_text"),
    ("thinking", "redacted_thinking", "reasoning", "tool_use", "server_tool_use"),
)  # parts
CALLS = ("tool_calls", "function_call")
THOUGHTS = ("analysis", "commentary")  # channels of Harmony
CONVERSATIONS, ASKED = ("messages", "conversation", "conversations"), {"question", "prompt"}
# Stands for an assistant's thought or call; the reader of cases takes it out of answers, and counts it.
REMOVED = "<think></think>"
# How a text begins that is an object or a list of objects, in JSON or as Python writes it into a table
OBJECT = re.compile(r"\s*(?:array\()?[\[(]?\s*(?:\{|[A-Z]\w*\(\w+=|content=)")
# What messages and replies of an API have in any of their forms, and other objects, such as an answer in JSON, do not
REPLY = re.compile(
    r"""\b(?:(?:role|from)["']?\s*[:=]\s*["'](?:user|human|assistant|gpt|model|system|tool)|type["']?\s*[:=]\s*["']\w*text)["']"""
    r"""|\b(?:generated_text|additional_kwargs|(?:finish|done|stop)_?reason)["']?\s*[:=]""",
    re.IGNORECASE,
)


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages."""
    if not isinstance(value, list):
        return False
    if not all(isinstance(message, dict) and _role(message) is not None for message in value):
        return False
    # Without any of these it is data beside the answers: {"role": "physician", "name": …}.
    return any({"content", "value", *CALLS} & {*message} for message in value)


def _role(message: dict) -> Any:
    """Return whose message it is, also of ShareGPT's form, {"from", "value"}."""
    return message.get("role", message.get("from"))


def _is_message(value: Any) -> bool:
    """Return whether a cell is one message of a user or an assistant, and no other data with a role."""
    return is_conversation([value]) and str(_role(value)).casefold() in ROLES


def as_messages(value: Any, name: str) -> Any:
    """Return the messages or the parts that a cell or a text in it has, one message as a list; another value as it is.

    RecordError, which names the column, if a text begins as an object, and has messages or a reply in another form.
    """
    content = _read(value)
    if _is_message(content):
        return [content]
    if is_conversation(content) or _is_parts(content):
        return content
    if isinstance(value, str) and OBJECT.match(value) and REPLY.search(value):
        raise RecordError(
            f"{name!r} holds messages in a form that cannot be read, and no text: {value[:40]!r}"
        )
    return value


def _read(value: Any) -> Any:
    """Return what a text that begins as an object is, in JSON or as Python writes it; else the value."""
    if isinstance(value, str) and OBJECT.match(value):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return read(value.strip())
    return value


def text_in_object(value: Any, name: str) -> tuple[str, Any]:
    """Return the key and the text of a cell that is an object with one text; else no key and the value.

    RecordError, which has the name, for an object with several texts or none.
    """
    content = _read(value)
    if not isinstance(content, dict):
        return "", value
    texts = list(_texts_in(content))
    if len(texts) != 1:
        keys = ", ".join(repr(key) for key, _ in texts) or "none"
        raise RecordError(
            f"{name} holds an object with the texts {keys}: put the answer alone into the cell"
        )
    return texts[0]


def _texts_in(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of an object, also of those in it, with their keys."""
    if isinstance(value, str) and value.strip():
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts_in(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner, key)


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
    if not isinstance(message, dict) or not isinstance(role := _role(message), str):
        raise RecordError(f"{place} is no object with a role and a content")
    content = message.get("content", message.get("value"))
    content = message.get("refusal") if content is None else content
    text = _parts(content) if isinstance(content, list) else content
    calls = [REMOVED for key in CALLS if message.get(key)]
    if not isinstance(text or "", str) or (text is None and not calls):
        raise RecordError(f"{place} has no text")
    texts = {key: value for key, value in message.items() if isinstance(value, str)}
    texts.pop("from", None)
    texts.pop("value", None)
    role = ROLES.get(role.casefold(), role)
    return texts | {"role": role, "content": "\n".join(filter(None, [text, *calls]))}


def _parts(parts: list) -> str:
    """Return the texts of a content's parts; of another part, such as an image, its kind in brackets."""
    read = [_part(part) for part in parts if part is not None]
    return "\n".join(str(text) for text in read if text not in (None, ""))


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type", "part")
    if kind in HIDDEN or str(kind).endswith("tool_result"):
        return REMOVED
    return part.get("text", part.get("refusal", f"[{kind}]"))


def answer_text(value: Any, name: str) -> Any:
    """Return the text of an answer that is given as messages, a message or parts; another value as it is.

    RecordError, which has the name, if the assistant did not write the last message, or wrote several after another.
    """
    value = as_messages(value, name)
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
    turn = [*takewhile(lambda message: message["role"] == "assistant", reversed(read))][::-1]
    texts = [message["content"] for message in turn]
    for at, message in enumerate(turn):
        if message.get("channel") in THOUGHTS:
            texts[at] = REMOVED
    if sum(bool(text.replace(REMOVED, "").strip()) for text in texts) > 1:
        raise RecordError(
            f"{name!r} ends with several messages of the assistant: leave the one that is the answer"
        )
    return messages[: len(read) - len(turn)], read[-1]["role"], "\n".join(texts)


def _is_parts(value: Any) -> bool:
    parts = value if isinstance(value, list) else ()
    return any(isinstance(part, dict) and part.get("type") in TEXTS for part in parts)


def without_messages(row: dict) -> dict:
    """Return a row of a table with texts in the place of messages, of which each cell has a list or one.

    `messages` are the question and, where an assistant has the last word, the answer to it; of other columns the last
    message is the answer.
    RecordError for messages without a text, and where it is unclear what they are.
    """
    row = {name: as_messages(value, name) for name, value in row.items()}
    asked = ASKED & set(row)
    if asked and {"chosen", "rejected"} <= set(row):  # a conversation has one of them again
        row = {name: value for name, value in row.items() if name not in CONVERSATIONS}
    texts = {}
    for name, value in row.items():
        before, role, text = _last_turn(value, name) if is_conversation(value) else ([], "", "")
        if role and name in CONVERSATIONS and not asked:
            if role not in ("assistant", "user"):
                last = f"message {len(value)} of {name!r}, the last one,"
                raise RecordError(f"{last} is neither a user's nor an assistant's: {role!r}")
            texts["question"] = _question(read_conversation(before, name))
            if role == "user":
                continue
            if "answer" in row:
                raise RecordError(
                    f"{name!r} ends with an answer, and there is 'answer' beside it: leave one"
                )
            texts["answer"] = text
        elif role and (name in ASKED or role == "user"):
            texts[name] = _question(read_conversation(value, name))
        else:
            texts[name] = answer_text(value, name)
    return texts


def _question(messages: list[Message]) -> str | list[Message]:
    if len(messages) == 1 and messages[0]["role"] == "user":
        return messages[0]["content"]
    return messages
