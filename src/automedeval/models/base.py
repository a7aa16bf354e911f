"""Prompts, answers, and `Chat`, the base class of every model that answers prompts."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from typing import Any

from automedeval.records.errors import RecordError
from automedeval.records.thoughts import without_thoughts
from automedeval.records.types import NOTHING

NOT_FINITE = "the model's probabilities are not finite: another --dtype may help"


@dataclass(frozen=True)
class Free:
    """Free text of an answer, which ends before `stop`, with which the next part begins; "": where the model ends it.

    A `json_string` ends before the quote that closes it.
    """

    stop: str
    json_string: bool = False

    def end(self, text: str) -> int | None:
        """Return the place at which a text ends; None if it goes on."""
        before = r"(?<!\\)(?:\\\\)*" if self.json_string else ""
        match = re.search(f"(?i){before}({re.escape(self.stop)})", text)
        return match.start(1) if match and self.stop else None


@dataclass(frozen=True)
class Slot:
    """One value of an answer; `values` are the allowed ones, as they are written."""

    name: str
    values: tuple[str, ...]


Part = str | Free | Slot
Step = tuple[str, Free | Slot, str]  # a part with the literal before it and the literal after it
Rivals = tuple[tuple[bytes, float], ...]  # the alternatives of a token, each with its probability
Messages = list[dict[str, str]]
Ids = list[int]  # of tokens
TextPairs = Sequence[tuple[str, str]]
Wanted = Sequence[bool] | None  # which of some prompts are to be answered; None: all
Results = Iterator[tuple[int, Any]]  # in any order, each with the index of what it answers


def steps_of(parts: Sequence[Part]) -> list[Step]:
    """Return the free text and the slots of an answer, each with the literals around it."""
    literals = [""]
    filled: list[Free | Slot] = []
    for part in parts:
        if isinstance(part, str):
            literals[-1] += part
        else:
            filled.append(part)
            literals.append("")
    return list(zip(literals, filled, literals[1:]))


@dataclass(frozen=True)
class Prompt:
    """One request to a chat.

    Args:
        messages: chat messages with "role" and "content".
        parts: literals, free texts and slots of the answer, for chats with `constrains`. None: the answer is free text.
        run, label: number of the repetition, and rubric with version; a sampled answer depends on them.
        key: (case id, number of the call in its dialogue), by which a recorded chat finds its answer.
        options: of a typed question: the answer is one of these, and what counts is how likely each of them is.
    """

    messages: Messages
    parts: tuple[Part, ...] | None = None
    run: int = 0
    label: str = ""
    key: tuple[str, int] | None = None
    options: tuple[str, ...] | None = None

    @property
    def form(self) -> tuple[Part, ...] | None:
        """Return the parts of a checkpoint's answer: `parts`, or the option of a typed question; None: free text."""
        return (Slot("", self.options),) if self.options else self.parts

    @property
    def slots(self) -> list[Slot]:
        """Return the values of the answer."""
        return [part for part in self.form or () if isinstance(part, Slot)]


@dataclass(frozen=True)
class Answer:
    """A chat's answer to a prompt.

    Args:
        values, probabilities: the chosen value and the probability of each allowed value, per slot; None without slots.
        free: the free text of an answer in parts.
        rivals: what the first token with a letter or digit of an endpoint's text might have been, itself included.
        truncated: the answer reached the limit of new tokens.
        usage: "prompt_tokens" and "completion_tokens"; of an endpoint "requests" too.
        error: why there is no answer, which makes an invalid verdict: the endpoint refused this prompt, it is `overlong`,
            or the request `failed` and may be answered another time.
    """

    text: str = ""
    values: tuple[str, ...] | None = None
    probabilities: tuple[dict[str, float], ...] | None = None
    free: str | None = None
    rivals: Rivals = ()
    truncated: bool = False
    usage: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    overlong: bool = False
    failed: bool = False

    @classmethod
    def of_failure(cls, why: str) -> "Answer":
        """Return what stands for the answer to a request that got none."""
        return cls(error=f"the request failed: {why}", failed=True)

    @classmethod
    def of_text(cls, text: str, **more: Any) -> "Answer":
        """Return the answer in a model's text, without its thoughts; an error where it cannot be told from the rest."""
        try:
            return cls(without_thoughts(text), **more)
        except RecordError as error:
            return cls(text, error=str(error), **more)

    @classmethod
    def of_odds(
        cls,
        odds: Sequence[dict[str, float]],
        values: Sequence[str] | None = None,
        *,
        usage: dict[str, int],
        **more: Any,
    ) -> "Answer":
        """Return the answer with a value for each slot, by default the likeliest; an error where its odds are not finite."""
        if any(map(math.isnan, chain.from_iterable(chances.values() for chances in odds))):
            return cls(error=NOT_FINITE, usage=usage)
        if values is None:
            values = [max(chances, key=chances.__getitem__) for chances in odds]
        return cls(values=tuple(values), probabilities=tuple(odds), usage=usage, **more)


Answers = Iterator[tuple[int, Answer]]  # as `Results`
# Yields prompts one after another, receives the answer to each, and returns a result.
Dialogue = Generator[Prompt, Answer, Any]


def lead(dialogue: Dialogue, reply: Callable[[Prompt], Answer]) -> Any:
    """Answer every prompt of a dialogue with `reply`; return its result."""
    try:
        prompt = next(dialogue)
        while True:
            prompt = dialogue.send(reply(prompt))
    except StopIteration as end:
        return end.value


def unescaped(text: str) -> str:
    """Return the text that the inside of a JSON string stands for; invalid JSON is returned unchanged."""
    try:
        return json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text


class Chat:
    """A model that answers prompts.

    Most chats have `answer(prompts, wanted)`, which yields (index, answer) of the wanted prompts (None: all), in any order; a
    recording and an endpoint have `follow`, which leads dialogues.

    `fingerprint` is a digest of everything that changes an answer. `constrains`: it writes the literals of `Prompt.parts` and
    chooses among the values of each slot. `writes`: it writes text, not slots and options alone. `batched`: the last bits of
    an answer depend on the batch. `checkpoint` is a digest of its weights, where they are known. `left_out` has the parameters
    that an endpoint refused, `failures` why requests got no answer, `spent` the usage of all answers of an endpoint; `resumed`:
    it answered others in an earlier run.
    """

    name: str
    constrains = batched = False
    writes = True
    checkpoint: str | None = None
    max_new_tokens = 0
    resumed = False
    left_out: Sequence[str] = ()
    failures: Sequence[str] = ()
    spent: Mapping[str, int] = NOTHING
    fingerprint: str

    def prepare(self) -> None:
        """Load now what takes long to load, so that its faults come before anything else is done."""

    def set_date(self, date: date) -> None:
        """Give chat templates that write today's date this one."""

    def notes(self) -> list[str]:
        """Return lines for the end of a run: who answered, and how."""
        return []

    def estimate(self, prompts: Sequence[Prompt]) -> int:
        """Return about how many tokens the prompts take: one has about four bytes, and a message's role takes four."""
        messages = chain.from_iterable(prompt.messages for prompt in prompts)
        return sum(len(message["content"].encode()) // 4 + 4 for message in messages)


class NoChat(Chat):
    """Stands in a judge that asks no model; what it computes is batched."""

    name = ""
    batched = True


def answer_groups(
    groups: Sequence[Sequence[Any]],
    wanted: Sequence[bool],
    answer: Callable[[list[Any], list[bool]], Iterable[tuple[int, Any]]],
) -> Iterator[tuple[int, list[Any]]]:
    """Answer the prompts of all groups at once; yield (index, answers) of each wanted group as its last prompt is answered.

    `answer` yields (index, answer) of the wanted ones among prompts, in any order. A group without a prompt has no answers.
    """
    asked: list[Any] = []
    owners: list[int] = []
    for index, group in enumerate(groups):
        asked += group
        owners += [index] * len(group)
        if wanted[index] and not group:
            yield index, []
    got: dict[int, dict[int, Any]] = defaultdict(dict)
    for place, value in answer(asked, [wanted[owner] for owner in owners]):
        owner = owners[place]
        got[owner][place] = value
        if len(got[owner]) == len(groups[owner]):
            yield owner, [answered for _, answered in sorted(got.pop(owner).items())]
