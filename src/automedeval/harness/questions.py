"""What a prompt asks, and the reference that the author of a task gave."""

import re
from typing import Any

from automedeval.records import (
    Question,
    RecordError,
    foreign_errors_at,
    patient_messages,
)
from automedeval.records.messages import objects_in
from automedeval.records.thoughts import CHAT_TOKEN
from automedeval.records.types import as_list

# What Python writes for a value that is no text
_VALUE = re.compile(
    r"""(?s)None|True|False|[-+]?(inf|nan|[\d.]+(e[-+]?\d+)?)|[\[({]((['"\d\[({+-]|None|True|False|inf|nan).*)?[\])}]""",
)


def question_of(prompt: Any, place: str) -> Question:
    """Return a prompt as a question: a text, or messages as their roles and texts; anything else is a RecordError."""
    if isinstance(prompt, str):
        return prompt
    question = []
    for message in prompt if isinstance(prompt, list) else [None]:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RecordError(f"{place}: the prompt is neither a text nor a list of messages")
        question.append({"role": message["role"], "content": text_of(message.get("content"))})
    return question


def text_of(content: Any) -> str:
    """Return a message's content as one text: it is a text, or a list of parts of which some are texts."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in objects_in(content) if part.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))


def shows_more(prompt: Any) -> bool:
    """Return whether a prompt has parts that are no text, such as images."""
    for message in objects_in(prompt):
        for part in objects_in(message.get("content")):
            if part.get("type") not in ("text", "reasoning"):
                return True
    return False


def question_expression(pattern: str | None) -> re.Pattern | None:
    """Return --question_pattern as an expression, None without one; RecordError if it is none or has no group."""
    if pattern is None:
        return None
    place = f"--question_pattern {pattern!r} is no regular expression"
    with foreign_errors_at(place, re.error, TypeError):  # in inspect_ai YAML may make it a dict
        expression = re.compile(pattern)
    if not expression.groups:
        raise RecordError(
            f"--question_pattern {pattern!r} has no group: put the question's part in brackets, (.*)"
        )
    return expression


def question_in(prompt: Question, pattern: str | None) -> Question | None:
    """Return the first group of a regular expression in a prompt, None if it does not fit; without one the whole prompt.

    The last place that fits is taken, because the examples of a prompt come before its question; of a conversation it is
    looked for in the last message of the user.
    """
    expression = question_expression(pattern)
    if expression is None:
        return prompt
    last, *_ = [*patient_messages(prompt), ""]
    groups = [fit[1].strip() for fit in expression.finditer(last) if fit[1]]
    return next(filter(None, reversed(groups)), None)


def refuse_template(prompt: Any, name: str, remedy: str) -> None:
    """Raise a RecordError if a prompt is a text with a token of a chat template, which is no part of the question."""
    if isinstance(prompt, str) and (token := CHAT_TOKEN.search(prompt)):
        raise RecordError(f"{name} has {token[0]!r} of a chat template: give {remedy}")


def reference_of(target: Any, written: bool = False) -> str | None:
    """Return a target as one text, the texts of a list one a line; None where there is none.

    RecordError if it is something else, such as a number: what it stands for is not known. `written` says that texts are what
    `str` made of the author's value, which may have been none, or a template filled with nothing.
    """
    texts = []
    for text in as_list(target):
        if text is None or text != text:  # JSON of others has NaN
            continue
        is_text = isinstance(text, str)
        if is_text and written:  # `str` made it of a value, or of a template without one
            is_text = not (_VALUE.fullmatch(text) or re.search(r"\bNone\b", text))
        if not is_text:
            raise RecordError(f"it cannot be told what was written as {str(target)[:60]!r}")
        if text.strip():
            texts.append(text)
    return "\n".join(texts) or None
