"""Typed questions: a score, a choice or a yes or no on a state, answered by the probability of each option.

A checkpoint gives the odds of the options as what comes next (`LocalChat`). An endpoint writes one of them, with the odds of
its first token where it tells these. What is neither gives a reason in words, and no option.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from automedeval.models.base import Answer, Messages, Prompt
from automedeval.records import RecordError
from automedeval.records.tables import packaged
from automedeval.records.thoughts import own_text

MOST = 26  # options of a question
CUT_OFF = "the answer was cut off at its token limit"
NO_STATE = "the template of its questions shows nothing of a state that is one text"
# What may stand around an option: quotation marks, brackets and Markdown, and a label before it.
_MARKS = r"[\s\"'“”‘’*_`()\[\]{}]*+"
_LABEL = r"(?:(?:(?:the|my|final) )*(?:answer|verdict|choice|option|score|rating)(?: is)?:?)?"


@dataclass(frozen=True)
class Judgement:
    """What was answered to a question: the likeliest `option`, or the one that was written, or an error.

    `probabilities` are those of the options, in the question's order; None where only an option is known.
    """

    option: str | None = None
    probabilities: dict[str, float] | None = None
    error: str | None = None


@dataclass(frozen=True)
class Question:
    """One question on a state, whose values replace `{passage}` and its kin in the wording; `name` has its version.

    RecordError: the options, as the model writes them, are no 2 to 26 different ones.
    """

    name: str
    wording: str
    options: tuple[str, ...]

    def __post_init__(self) -> None:
        different = {option.casefold() for option in self.options}
        if not 2 <= len(different) == len(self.options) <= MOST:
            raise RecordError(
                f"question {self.name}: {len(self.options)} options; it takes 2 to {MOST} different ones"
            )

    def prompt(self, state: Mapping[str, str], before: Messages = ()) -> Prompt:  # type: ignore[assignment]
        """Return the prompt that asks the question on a state, after the messages of a dialogue."""
        text = re.sub(r"\{(\w+)\}", lambda place: state[place[1]], self.wording)
        messages = [*before, {"role": "user", "content": text}]
        return Prompt(messages, options=self.options, label=self.name)

    def read(self, answer: Answer) -> Judgement:
        """Return the option that is all that an answer says: "A.", "**a)**", "Answer: 4/5".

        What more it says may take the option back ("No, I cannot tell", "4 of 10"), and what was cut off may have gone on.
        """
        if answer.error:
            return Judgement(error=answer.error)
        if answer.probabilities:
            return self._likeliest(answer.probabilities[0])
        text = own_text(answer.text).strip()
        option = self._said(text)
        if answer.truncated or option is None:
            words = f"{' '.join(text.split())[:40]!r} is not one of {', '.join(self.options)}"
            return Judgement(error=CUT_OFF if answer.truncated else words)
        odds = self._odds(answer)
        return self._likeliest(odds) if odds else Judgement(option)

    def _said(self, text: str) -> str | None:
        """Return the option that a text is; None if it says anything else."""
        words = "|".join(map(re.escape, sorted(self.options, key=len, reverse=True)))
        scale = (
            rf"(?:[.,]0+)?(?:\s?/\s?{self.options[-1]})?" if self.options[-1].isdecimal() else ""
        )  # "4.0", "4/5"
        form = rf"{_MARKS}(?:[-•]\s)?{_MARKS}{_LABEL}{_MARKS}({words}){scale}{_MARKS}[.!]?{_MARKS}"
        match = re.fullmatch(form, text, re.I)
        if match:
            return next(
                option for option in self.options if option.casefold() == match[1].casefold()
            )
        return None

    def _likeliest(self, odds: dict[str, float]) -> Judgement:
        return Judgement(max(self.options, key=odds.__getitem__), odds)

    def _odds(self, answer: Answer) -> dict[str, float] | None:
        """Return the odds in the alternatives of the answer's first token; None if they do not tell the options apart."""
        # A server may list the tokens of thoughts before it, and strip the ends of its text.
        at = b"".join(piece for piece, _ in answer.tokens).rfind(answer.text.strip().encode())
        ends = itertools.accumulate(len(piece) for piece, _ in answer.tokens)
        own = (
            rivals
            for (piece, rivals), end in zip(answer.tokens, ends)
            if end > at and re.search(rb"\w", piece)
        )
        first = next(own, ()) if at >= 0 else ()
        odds = dict.fromkeys(self.options, 0.0)
        for piece, chance in first:
            written = re.sub(r"\W", "", piece.decode(errors="replace")).casefold()
            begun = [
                option
                for option in self.options
                if written and option.casefold().startswith(written)
            ]
            if len(begun) == 1:
                odds[begun[0]] += chance
            elif begun:  # "1" of "10"
                return None
        total = sum(odds.values())
        # Where they are less than half of it, the model was about to say something else.
        return {option: chance / total for option, chance in odds.items()} if total >= 0.5 else None


def instructions(slot: str) -> str:
    """Return how a model of decisions is asked for a value: for what a slot names, or what stands at the end of the state."""
    return (
        f"What is your verdict on {slot}?"
        if slot
        else "Answer the question at the end of the input."
    )


def read_questions(room: str) -> dict[str, Question]:
    """Return the questions of a room by their keys, each named by its key and its version."""
    return {
        key: Question(
            f"{key}@{question['version']}", question["wording"].strip(), tuple(question["options"])
        )
        for key, question in packaged(room, "questions").items()
    }
