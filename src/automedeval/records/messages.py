"""Read conversations as chat programs write them: messages whose contents are texts, or parts that have texts."""

from collections.abc import Sequence
from typing import Any

from automedeval.records.errors import RecordError

KEYS = (("role", "content"), ("from", "value"))  # the second of ShareGPT, which has these roles:
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant"}
THOUGHTS = ("thinking", "redacted_thinking", "reasoning")  # kinds of parts
CONVERSATIONS = ("messages", "conversation", "conversations")


def read_conversation(messages: Sequence[dict], name: str) -> list[dict[str, str]]:
    """Return messages as `{"role", "content"}`, each with a text; other keys with texts stay.

    RecordError, which names the message of `name`, for one without text.
    """
    return [_message(message, f"message {number} of {name!r}") for number, message in enumerate(messages, 1)]


def _message(message: Any, place: str) -> dict[str, str]:
    keys = next((keys for keys in KEYS if isinstance(message, dict) and keys[0] in message), None)
    if keys is None:
        raise RecordError(f"{place} is no object with a role and a content")
    if keys == KEYS[0] and message.get("content") and all(isinstance(value, str) for value in message.values()):
        return message
    role, content = (message.get(key) for key in keys)
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {"text": part} for part in content if part is not None]
        texts = [part.get("text", f"[{part.get('type')}]") for part in parts if part.get("type") not in THOUGHTS]
        content = "\n".join(str(text) for text in texts if text not in (None, ""))
    if not isinstance(role, str) or not isinstance(content, str):
        raise RecordError(f"{place} has no text")
    beside = {key: value for key, value in message.items() if isinstance(value, str) and key not in keys}
    return {"role": ROLES.get(role, role), "content": content, **beside}


def without_messages(row: dict, place: str) -> dict:
    """Return a row of a table with a text in the place of one message, and with what a conversation asks and answers.

    A conversation is the question and, where an assistant has the last word, the answer to it; beside a question it is left.

    RecordError for a message without text, and for messages in another column: which of them is the answer is not known.
    """
    places = ("question", "prompt", *CONVERSATIONS)
    if other := next((name for name, cell in row.items() if name not in places and _is_conversation(cell)), None):
        raise RecordError(f"{place}: {other!r} must be text, and holds messages")
    asked = next((name for name in places if name in row), "")
    if not isinstance(row.get(asked), list) or not row[asked]:
        return row
    try:
        messages = read_conversation(row[asked], asked)
    except RecordError as error:
        raise RecordError(f"{place}: {error}") from None
    if asked not in CONVERSATIONS:
        return row | {asked: _question(messages)}
    last = messages[-1]
    if last["role"] not in ("assistant", "user"):
        which = f"message {len(messages)} of {asked!r}, the last one,"
        raise RecordError(f"{place}: {which} is neither a user's nor an assistant's: {last['role']!r}")
    texts: dict[str, Any] = {"question": _question(messages)}
    if last["role"] == "assistant":
        texts = {"question": _question(messages[:-1]), "answer": last["content"]}
    return {name: value for name, value in row.items() if name != asked} | texts


def _is_conversation(cell: Any) -> bool:
    return isinstance(cell, list) and any(isinstance(each, dict) and {"role", "from"} & set(each) for each in cell)


def _question(messages: list[dict[str, str]]) -> str | list[dict[str, str]]:
    return messages[0]["content"] if len(messages) == 1 and messages[0]["role"] == "user" else messages
