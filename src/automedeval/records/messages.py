"""Read conversations as chat programs write them: messages with parts, tool calls and no text, and rows of preferences."""

import json
from collections.abc import Sequence
from typing import Any

from automedeval.records.errors import RecordError

ROLES = {"user": "user", "human": "user"} | dict.fromkeys(("assistant", "gpt", "chatgpt", "model"), "assistant")
# Kinds of parts
TEXTS, THOUGHTS = ("text", "output_text", "input_text"), ("thinking", "redacted_thinking", "reasoning")
CALLS = ("tool_calls", "function_call")
CONVERSATIONS = ("messages", "conversation", "conversations")


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages."""
    if not isinstance(value, list) or not all(isinstance(each, dict) and _kind(each) for each in value):
        return False
    # Without any of these it is data beside the answers: {"role": "physician", "name": …}.
    return any({"content", "value", *CALLS} & {*each} for each in value)


def _kind(message: dict) -> tuple[str, str] | None:
    return next((keys for keys in (("role", "content"), ("from", "value")) if keys[0] in message), None)


def _is_message(value: Any) -> bool:
    """Return whether a cell is one message of a user or an assistant, and no other data with a role or a source."""
    kind = _kind(value) if isinstance(value, dict) else None
    if kind is None or str(value[kind[0]]).casefold() not in ROLES:
        return False
    return not {kind[1], *CALLS}.isdisjoint(value)


def read_conversation(messages: Sequence[dict], name: str) -> list[dict[str, str]]:
    """Return messages as `{"role", "content"}`, each with a text; other keys with texts stay.

    RecordError, which names the message of `name`, for one without text.
    """
    return [_message(message, f"message {number} of {name!r}") for number, message in enumerate(messages, 1)]


def _message(message: dict, place: str) -> dict[str, str]:
    if not isinstance(message, dict) or not (keys := _kind(message)):
        raise RecordError(f"{place} is no object with a role and a content")
    if keys[0] == "role" and message.get("content") and all(isinstance(value, str) for value in message.values()):
        return message | {"role": ROLES.get(message["role"].casefold(), message["role"])}
    role, content = (message.get(key) for key in keys)
    content = message.get("refusal") if content is None else content
    texts = [_parts(content)] if isinstance(content, list) else [content] if isinstance(content, str) else []
    calls = message.get("tool_calls") or message.get("function_call") or ()
    texts += map(_call, calls if isinstance(calls, list) else [calls] if calls else [])
    if not isinstance(role, str) or not texts or (content is not None and not isinstance(content, str | list)):
        raise RecordError(f"{place} has no text")
    beside = {key: value for key, value in message.items() if isinstance(value, str) and key not in keys}
    return {"role": ROLES.get(role.casefold(), role), "content": "\n".join(filter(None, texts)), **beside}


def _parts(parts: list) -> str:
    """Return the texts of a content's parts; of another part, such as an image, its kind in brackets; no thoughts."""
    read = [part if isinstance(part, dict) else {"text": part} for part in parts if part is not None]
    texts = [_part(part) for part in read if part.get("type") not in THOUGHTS]
    return "\n".join(str(text) for text in texts if text not in (None, ""))


def _part(part: dict) -> Any:
    """Return the text of a part of a content; a tool's call and result as Anthropic has them."""
    if part.get("type") == "tool_use":
        return _call({"name": part.get("name"), "arguments": part.get("input", "")})
    if part.get("type") == "tool_result":
        content = part.get("content")
        return _parts(content) if isinstance(content, list) else content
    return part.get("text", f"[{part.get('type', 'part')}]")


def _call(call: Any) -> str:
    function = call.get("function") or call if isinstance(call, dict) else {"name": call}
    arguments = function.get("arguments", "")
    return f"[calls {function.get('name')}({arguments if isinstance(arguments, str) else json.dumps(arguments)})]"


def answer_text(value: Any, name: str) -> Any:
    """Return the text of an answer that is given as messages, a message or parts; another value as it is."""
    if is_conversation(value):
        return _answer(read_conversation(value, name), repr(name))
    if isinstance(value, dict) and _kind(value):
        return _message(value, repr(name))["content"]
    return _parts(value) if _is_parts(value) else value


def _answer(messages: list[dict[str, str]], place: str) -> str:
    """Return the last message; RecordError if the assistant did not write it."""
    if messages[-1]["role"] != "assistant":
        raise RecordError(f"{place}: the last message is not the assistant's; its role is {messages[-1]['role']!r}")
    return messages[-1]["content"]


def _is_parts(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, dict) and each.get("type") in TEXTS for each in value)


def without_messages(row: dict, place: str) -> dict:
    """Return a row of a table with texts in the place of messages, of which each cell has a list or one.

    `messages` are the question and, where an assistant has the last word, the answer to it. Of preferences, `chosen` and
    `rejected`, the last messages are the answers; those that both begin with are the question if there is no `prompt`.
    """
    row = {name: _parts(value) if _is_parts(value) else value for name, value in row.items()}
    row = {name: [value] if _is_message(value) else value for name, value in row.items()}
    if {"chosen", "rejected"} <= set(row) and {"prompt", "question"} & set(row):  # a conversation has one of them again
        row = {name: value for name, value in row.items() if name not in CONVERSATIONS}
    told = {name: value for name, value in row.items() if is_conversation(value)}
    if not told:
        return row
    try:
        read = {name: read_conversation(value, name) for name, value in told.items()}
    except RecordError as error:
        raise RecordError(f"{place}: {error}") from None
    texts: dict[str, Any] = {}
    for name, messages in read.items():
        if name in CONVERSATIONS and not {"question", "prompt"} & set(row):
            answered = messages[-1]["role"] == "assistant"
            if messages[-1]["role"] not in ("assistant", "user"):
                last = f"message {len(messages)} of {name!r}, the last one,"
                raise RecordError(f"{place}: {last} is neither a user's nor an assistant's: {messages[-1]['role']!r}")
            texts |= {"question": _question(messages[:-1] if answered else messages)}
            texts |= {"answer": messages[-1]["content"]} if answered else {}
        else:
            asks = name in ("question", "prompt") or messages[-1]["role"] == "user"
            texts[name] = _question(messages) if asks else _answer(messages, f"{place}: {name!r}")
    if {"chosen", "rejected"} <= set(read) and not {"question", "prompt"} & {*row, *texts}:
        if read["chosen"][:-1] != read["rejected"][:-1]:
            what = "'chosen' and 'rejected' do not answer one question"
            raise RecordError(f"{place}: {what}: their messages before differ")
        texts["question"] = _question(read["chosen"][:-1])
    return {name: value for name, value in row.items() if name not in told} | texts


def _question(messages: list[dict[str, str]]) -> str | list[dict[str, str]]:
    return messages[0]["content"] if len(messages) == 1 and messages[0]["role"] == "user" else messages
