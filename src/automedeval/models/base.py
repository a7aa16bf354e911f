"""What a model is to the rest of the package: prompts and answers, and the protocol `Chat`."""

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from automedeval.records import AutoMedEvalError

# Chat-template tokens of the common model families. In a judge's answer they end what the judge said.
CONTROL_TOKEN = re.compile(
    r"<\|[^<>|\n]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>|\[/?(?:INST|SYSTEM_PROMPT)\]|<</?SYS>>"
    r"|<｜[^<>｜\n]{1,40}｜>"
)


@dataclass(frozen=True)
class Free:
    """Free text of an answer. It ends where `stop` begins, which the part after it starts with."""

    stop: str
    json_string: bool = False


@dataclass(frozen=True)
class Slot:
    """One value of an answer; `values` are the allowed ones, as they are written."""

    name: str
    values: tuple[str, ...]


Part = str | Free | Slot


Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Prompt:
    """What a chat is asked.

    `parts` are laid down by chats that can; without them a chat writes as it likes, within `schema` (JSON schema) where the
    endpoint has a way to hold it to that. `label` names rubric and version for caches. `key` is (case id, number of the call
    in its dialogue), for chats that play answers back. `proposed` holds (model, score) of a suggestion that is to be reviewed,
    slot by slot, for a reviewer that is a rule and reads no text.
    """

    messages: Messages
    parts: tuple[Part, ...] | None = None
    schema: dict | None = None
    run: int = 0
    label: str = ""
    key: tuple[str, int] | None = None
    proposed: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True)
class Answer:
    """What a chat gave back.

    `values` and `probabilities` (value → probability, per slot) are there when the answer was laid down in parts, with the
    free text in `free`. `scored` gives, for text that a model wrote itself, pairs of a character position and the
    probabilities of the tokens that competed there. `error` says why there is no answer; such an answer is an invalid verdict.
    """

    text: str = ""
    values: tuple[str, ...] | None = None
    probabilities: tuple[dict[str, float], ...] | None = None
    free: str | None = None
    scored: tuple[tuple[int, dict[str, float]], ...] = ()
    truncated: bool = False
    usage: dict[str, int] = field(default_factory=dict)
    error: str | None = None


# Yields one prompt after the other, is sent the answer to each, and returns what came of them.
Dialogue = Generator[Prompt, Answer, Any]


def single(prompt: Prompt) -> Dialogue:
    """Ask one prompt, and return its answer."""
    return (yield prompt)


def own_text(text: str) -> str:
    """Return what the teacher said itself: what follows a control token is not the teacher's."""
    control = CONTROL_TOKEN.search(text)
    return text[: control.start()] if control else text


class ChatError(AutoMedEvalError):
    """The chat cannot go on: wrong key, no such model, endpoint down, budget spent."""


class Chat(Protocol):
    """What a judge needs of a chat."""

    name: str
    fingerprint: str  # twelve hexadecimal digits over everything that changes an answer
    constrains: bool  # lays down `Prompt.parts` so that only allowed values compete

    def overflow(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return for each prompt how many tokens too long it is for the context window; 0 or less fits."""

    def estimate(self, prompts: Sequence[Prompt]) -> tuple[int, float]:
        """Return about how many tokens the prompts take, and what answering them can cost at most."""

    def answer(self, prompts: Sequence[Prompt], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Answer]]:
        """Yield (index, answer) for the wanted prompts, in any order."""
