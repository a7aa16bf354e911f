"""Constrained answers of a server: the form that it has to keep, the requests that an answer takes, and its probabilities.

A server that writes only what a regular expression or a grammar allows gives the answer in parts of a local judge: its literals
as they are, one of the allowed values in each slot. The log-probabilities of its tokens give the probability of each value.

A rationale is a request of its own, without a constraint, which ends before the score line. The scores are asked for after it,
so that a rationale that reaches its limit does not cost them. A value whose probability is hidden behind a token that it shares
with others (`response_a`, `response_b`) takes one more short request.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from automedeval.models.base import (
    Answer,
    Field,
    Free,
    Part,
    Prompt,
    Slot,
    Tokens,
    after_thoughts,
    answer_layout,
    most_tokens,
    own_text,
    unescaped,
)
from automedeval.models.completions import token_alternatives

UNSEEN = 0.01  # the share of a value's probability that may be unseen without a note in the verdict
_META = re.compile(r"([\\.^$*+?{}\[\]|()])")
_STRING = r'(?:[^"\\]|\\.)*'  # the inside of a JSON string


def _escaped(text: str) -> str:
    return _META.sub(r"\\\1", text).replace("\n", "\\n")


def regular_expression(parts: Sequence[Part], opening: str = "(?:") -> str:
    """Return the regular expression of literals and slots; `opening` begins the group of a slot."""
    pieces = (
        opening + "|".join(map(_escaped, part.values)) + ")" if isinstance(part, Slot) else _escaped(str(part))
        for part in parts
    )
    return "".join(pieces)


def gbnf(parts: Sequence[Part]) -> str:
    """Return the same in the grammar notation of llama.cpp."""
    pieces = (
        "(" + " | ".join(map(json.dumps, part.values)) + ")" if isinstance(part, Slot) else json.dumps(part)
        for part in parts
    )
    return "root ::= " + " ".join(pieces)


# The field by which servers are constrained. They ignore the names of others, so that one request with all of them shows which
# one a server obeys.
DIALECTS: dict[str, Callable[[Sequence[Part]], Any]] = {
    "structured_outputs": lambda parts: {"regex": regular_expression(parts)},  # vLLM
    "guided_regex": regular_expression,  # an older vLLM
    "regex": regular_expression,  # SGLang
    "grammar": gbnf,  # llama.cpp
}
# Fields of a request that has its last message, the beginning of the answer, continued.
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}


@dataclass(frozen=True)
class ServerCapabilities:
    """What a server offers.

    Args:
        dialect: the name in `DIALECTS` by which it is constrained; None: it is not, or it does not continue a begun answer.
        alternatives: how many log-probabilities it gives per token.
    """

    dialect: str | None = None
    alternatives: int = 0

    def __str__(self) -> str:
        probabilities = f"yes ({self.alternatives})" if self.alternatives else "no"
        return f"server: constrains {'yes' if self.dialect else 'no'}, log-probabilities {probabilities}"


@dataclass(frozen=True)
class Step:
    """One request of a constrained answer.

    Args:
        written: the answer so far; the server goes on after it.
        parts: what it has to write now; None: free text, which ends before `stop`.
        stop: texts that end it; they are no part of what it writes.
        used: tokens of the free text that earlier steps wrote.
    """

    written: str = ""
    parts: tuple[Part, ...] | None = None
    stop: tuple[str, ...] = ()
    used: int = 0

    def most_tokens(self, free: int) -> int:
        """Return the largest number of tokens that it writes: `free` for a free text, and one for each byte of the rest."""
        return max(1, free - self.used) if self.parts is None else most_tokens(self.parts, free)


@dataclass(frozen=True)
class Reply:
    """What a server wrote in a step: the text, and of each token its bytes and (bytes, probability) of its rivals."""

    answer: Answer
    text: str = ""
    tokens: Tokens = ()
    ended: bool = True  # by itself, not by a limit


def reply_of(completion: Mapping[str, Any] | None, answer: Answer, beginning: str) -> Reply:
    """Return the reply in a chat completion (None: refused) without the beginning of the answer, which llama.cpp repeats."""
    if completion is None:
        return Reply(answer)
    choice = completion["choices"][0]
    content = (choice.get("message") or {}).get("content") or ""
    ended = choice.get("finish_reason") != "length"
    text = content if isinstance(content, str) else answer.text
    return Reply(answer, text.removeprefix(beginning), token_alternatives(choice), ended)


def constrained_answer(prompt: Prompt, sampled: bool = False) -> Generator[Step, Reply, Answer]:
    """Yield the steps of a prompt's answer in parts, receive the reply to each, and return the answer.

    The server is asked for one value after another, each after the text before it: the literals have the tokens that its
    tokenizer gives them, as with a local judge, and are not decoded. A reply of another form is returned as free text.

    Args:
        sampled: the server draws the values. Otherwise each is the most probable one, as with a local judge, even if the most
            probable first token leads to another.
    """
    opening, free, slots = answer_layout(prompt.parts or ())
    written, rationale, truncated = "", None, False
    usage: Counter[str] = Counter()
    if free:
        if free.json_string:
            reply = yield from _string_within(opening, usage)
        else:
            reply = yield Step(stop=tuple(dict.fromkeys((free.stop, free.stop.lower(), free.stop.upper()))))
            usage.update(reply.answer.usage)
        # An empty rationale is an answer if the server ended it; a refusal, or thoughts that use up all tokens, are none.
        if reply.answer.error and (reply.text.strip() or not reply.ended or not reply.answer.refused):
            return reply.answer
        written, rationale = _rationale(reply, opening, free)
        truncated = not reply.ended
    values: list[str] = []
    all_odds: list[Odds] = []
    for field in slots:
        head, (literal, slot, following) = _next_slot(*field)
        written += head
        reply, value, odds = yield from _ask_value(written, literal, slot, following, usage)
        if value is None:
            if reply.answer.error:
                return reply.answer
            return Answer(written + reply.text, truncated=truncated or not reply.ended, usage=dict(usage))
        if odds is not None:
            all_odds.append(odds)
            value = value if sampled else max(slot.values, key=odds.chances.__getitem__)
        values.append(value)
        written += literal + value
    answer = Answer(written + slots[-1][2], tuple(values), free=rationale, truncated=truncated, usage=dict(usage))
    if len(all_odds) < len(values):
        return answer
    return replace(
        answer, probabilities=tuple(odds.chances for odds in all_odds), unseen=max(odds.unseen for odds in all_odds)
    )


def _next_slot(literal: str, slot: Slot, following: str) -> tuple[str, Field]:
    """Return the part of a literal that a request can begin with, and the slot with the literals that the server writes.

    Spaces and quotes before a value are written by the server: a token may join them to the value.
    """
    end = len(literal.rstrip(' "'))
    # "1" and "10" are told apart by what follows.
    ambiguous = any(value != other and other.startswith(value) for value in slot.values for other in slot.values)
    return literal[:end], (literal[end:], slot, following if ambiguous else "")


def _string_within(opening: str, usage: Counter[str]) -> Generator[Step, Reply, Reply]:
    """Ask for the inside of a JSON string, without a constraint, as a local judge writes it; return it as one reply.

    A constraint would refuse the tokens that join the closing quote to what follows it, and models end strings by these: the
    text would run on. A quote that is escaped does not end it: the server goes on after it.
    """
    inside = ""
    while True:
        reply = yield Step(opening + inside, None, ('"',), usage["completion_tokens"])
        usage.update(reply.answer.usage)
        inside += reply.text
        escaped = (len(inside) - len(inside.rstrip("\\"))) % 2 == 1
        if reply.answer.error or not reply.ended or not escaped:
            return replace(reply, text=inside)
        inside += '"'


def _rationale(reply: Reply, opening: str, free: Free) -> tuple[str, str]:
    """Return the answer up to the end of its free text, and the free text in plain characters."""
    if free.json_string:
        inside = re.findall(_STRING, reply.text)[0]
        return opening + inside, unescaped(inside)
    text = own_text(after_thoughts(reply.text))
    end = re.search(re.escape(free.stop), "\n" + text, re.I)
    text = text[: max(0, end.start() - 1)] if end else text
    return text, text.strip()  # blanks at its end stay, as with a local judge: the scores come after the same text


@dataclass(frozen=True)
class Odds:
    """What the tokens of a reply tell of a slot.

    Args:
        chances: the probability of each value.
        shared: values that begin alike → their probability together, where no token tells them apart; 1 is the sum of both.
        unseen: the largest share that is left out of both: behind alternatives that are not told, or that decide nothing.
    """

    chances: dict[str, float]
    shared: dict[tuple[str, ...], float]
    unseen: float

    def whole(self) -> "Odds":
        """Return the odds of the values that are told apart; what the others share is unseen."""
        seen = sum(self.chances.values())
        chances = {value: chance / seen for value, chance in self.chances.items()}
        return Odds(chances, {}, 1 - seen * (1 - self.unseen))


def _ask_value(
    written: str, literal: str, slot: Slot, following: str, usage: Counter[str]
) -> Generator[Step, Reply, tuple[Reply, str | None, Odds | None]]:
    """Ask for a value after a text; return the reply, the value (None: the reply has another form), and the odds of all."""
    parts = tuple(part for part in (literal, slot, following) if part)
    reply = yield Step(written, parts)
    usage.update(reply.answer.usage)
    match = re.fullmatch(regular_expression(parts, "("), reply.text)
    if reply.answer.error or not match:
        return reply, None, None
    odds = slot_odds(reply.tokens, reply.text, literal, slot.values, match[1], following)
    if odds is not None:
        odds = yield from _shared_out(odds, written, literal, following, usage)
    return reply, match[1], odds


def _shared_out(
    odds: Odds, written: str, literal: str, following: str, usage: Counter[str]
) -> Generator[Step, Reply, Odds | None]:
    """Ask how the values of `Odds.shared` share their probability; return the odds of all values, None if it is not told."""
    chances, unseen = dict(odds.chances), odds.unseen
    for group, mass in odds.shared.items():
        _, _, inner = yield from _ask_value(written, literal, Slot("", group), following, usage)
        if inner is None:
            return None
        unseen += mass * inner.unseen
        for value, share in inner.chances.items():
            chances[value] += mass * share
    return Odds(chances, {}, min(1.0, unseen))


@cache
def shared_beginnings(values: tuple[str, ...]) -> int:
    """Return the most requests of `_shared_out`: one for each beginning that several of the values have, but not all."""
    starts = {value[:size] for value in values for size in range(1, len(value) + 1)}
    groups = {tuple(value for value in values if value.startswith(start)) for start in starts}
    return sum(1 < len(group) < len(values) for group in groups)


def slot_odds(
    tokens: Tokens, text: str, before: str, values: Sequence[str], value: str, following: str | None
) -> Odds | None:
    """Return what the tokens of a text tell of the values of a slot; None if they tell nothing.

    Values may share tokens, and the text takes the way of one of them. What values on another way share is told in sum only.

    Args:
        before: the text before the slot.
        value: the one of the values that is in the text.
        following: the literal after it, which tells "1" from "10". None: the text is free; blanks may stand before the value,
            and anything but a digit after it.
    """
    written = text.encode()
    # A server may strip the ends of its text, and thoughts.
    start = b"".join(piece for piece, _ in tokens).rfind(written)
    if not tokens or start < 0:
        return None

    def fits(value: str, said: bytes) -> bool:
        if following is not None:
            whole = (value + following).encode()
            return whole.startswith(said) or (following != "" and said.startswith(whole))
        whole, said = value.encode(), said.lstrip()
        return whole.startswith(said) or (said.startswith(whole) and not said[len(whole) :][:1].isdigit())

    at, position = len(before.encode()), -start
    open_, mass = frozenset(values), 1.0
    sure, seen, unseen = 1.0, 0.0, 0.0  # of the text's way, of the ways that leave it, and of those that are not told
    masses: dict[frozenset[str], float] = defaultdict(float)
    for piece, rivals in tokens:
        begins, position = position, position + len(piece)
        if position <= at:
            continue
        here: dict[frozenset[str], float] = defaultdict(float)
        taken: frozenset[str] = frozenset()
        rest = 1.0
        earlier = written[max(0, begins) : at]  # of a token that begins before the slot
        for rival, chance in rivals:
            said = written[at : max(at, begins)] + rival[len(earlier) :]
            fitting = (
                frozenset(each for each in open_ if fits(each, said)) if rival.startswith(earlier) else frozenset()
            )
            if rival == piece:
                taken = fitting
            if fitting != open_ or rival == piece:  # another token that decides nothing leads to what is not told
                here[fitting] += chance
                rest -= chance
        if value not in taken or not here[taken]:
            return None
        if following is not None:
            here.pop(frozenset(), None)  # nothing but the values can be written
        total, rest = sum(here.values()), max(0.0, rest)
        unseen += sure * rest / (total + rest)
        for fitting, chance in here.items():
            if fitting and fitting != taken:
                masses[fitting] += mass * chance / total
                seen += sure * chance / (total + rest)
        mass, sure, open_ = mass * here[taken] / total, sure * here[taken] / (total + rest), taken
        if len(taken) == 1:
            break
    else:
        if following is not None:
            return None
    masses[open_] += mass
    total = sum(masses.values())
    groups = {tuple(each for each in values if each in group): mass / total for group, mass in masses.items() if mass}
    chances = dict.fromkeys(values, 0.0) | {group[0]: mass for group, mass in groups.items() if len(group) == 1}
    shared = {group: mass for group, mass in groups.items() if len(group) > 1}
    return Odds(chances, shared, unseen / (seen + sure + unseen))


def text_odds(answer: Answer, before: str, values: Sequence[str], value: str) -> Odds | None:
    """Return the odds of a value that stands in a free text after `before`; None if its tokens do not tell them.

    They do not where values begin alike, as 1 and 10, and the tokens that tell them apart are not those of the text.
    """
    odds = slot_odds(answer.tokens, answer.text, before.rstrip(" \t\r\n"), values, value, None)
    return None if odds is None or sum(odds.shared.values()) > UNSEEN else odds.whole()
