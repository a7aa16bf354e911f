"""What a prompt asks: a text or a conversation, the question in it, and the options of a multiple-choice question."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.records import RecordError

Question = str | list[dict[str, str]]


def question_of(prompt: Any, place: str) -> Question:
    """Return a prompt as a question: a text, or messages as their roles and texts; anything else is a RecordError."""
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not all(
        isinstance(each, dict) and isinstance(each.get("role"), str) for each in prompt
    ):
        raise RecordError(f"{place}: the prompt is neither a text nor a list of messages")
    return [{"role": each["role"], "content": text_of(each.get("content"))} for each in prompt]


def text_of(content: Any) -> str:
    """Return a message's content as one text: it is a text, or a list of parts of which some are texts."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in _parts(content) if part.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))


def shows_more(prompt: Any) -> bool:
    """Return whether a prompt has parts that are no text, such as images."""
    parts = [part for each in prompt for part in _parts(each.get("content"))] if isinstance(prompt, list) else []
    return any(part.get("type") not in ("text", "reasoning") for part in parts)


def _parts(content: Any) -> list[dict[str, Any]]:
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def is_blank(question: Question) -> bool:
    """Return whether a question has no text."""
    contents = [question] if isinstance(question, str) else [each["content"] for each in question]
    return not any(content.strip() for content in contents)


def lettered(choices: Sequence[str]) -> dict[str, str]:
    """Return letter → "LETTER) text" of the choices of a question, as inspect_ai shows them: A to Z, then 1 and so on."""
    letters = [chr(ord("A") + index) if index < 26 else str(index - 25) for index in range(len(choices))]
    return {letter: f"{letter}) {choice}" for letter, choice in zip(letters, choices)}


def with_options(question: Question, options: Mapping[str, str]) -> Question:
    """Return a question with the options that it leaves to be chosen from."""
    if not options or is_blank(question):
        return question
    shown = "\n".join(options.values())
    if isinstance(question, str):
        return f"{question}\n\n{shown}"
    *before, last = question
    return [*before, last | {"content": f"{last['content']}\n\n{shown}"}]


def question_expression(pattern: str | None) -> re.Pattern | None:
    """Return --question_pattern as an expression, None without one; RecordError if it is none or has no group."""
    if pattern is None:
        return None
    try:
        expression = re.compile(pattern)
    except (re.error, TypeError) as error:  # in inspect_ai it may be a dict, as YAML reads it
        raise RecordError(f"--question_pattern {pattern!r} is no regular expression: {error}") from None
    if not expression.groups:
        raise RecordError(f"--question_pattern {pattern!r} has no group: put the question's part in brackets, (.*)")
    return expression


def question_in(prompt: Question, pattern: str | None) -> Question | None:
    """Return the first group of a regular expression in a prompt, None if it does not fit; without one the whole prompt.

    The last place that fits is taken, because the examples of a prompt come before its question; of a conversation it is
    looked for in the last message of the user.
    """
    expression = question_expression(pattern)
    if expression is None:
        return prompt
    if not isinstance(prompt, str):
        asked = [each["content"] for each in prompt if each["role"] == "user"] or [each["content"] for each in prompt]
        prompt = asked[-1] if asked else ""
    groups = [fit[1].strip() for fit in expression.finditer(prompt) if fit[1]]
    return next(filter(None, reversed(groups)), None)


def question_key(question: Question) -> str:
    """Return the text by which questions are compared: blanks do not count, and one message of a user is its text."""
    if not isinstance(question, str):
        if len(question) == 1:
            return question_key(question[0]["content"])
        return "\n".join(f"{each['role']}: {' '.join(each['content'].split())}" for each in question)
    return " ".join(question.split())
