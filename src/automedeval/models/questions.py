"""Typed questions: a score or a choice, answered by the probability of each option.

A checkpoint gives the odds of the options as what comes next (`LocalChat`). An endpoint writes one of them, with the odds of
its first token where it tells these.
"""

import re
from collections.abc import Sequence

from automedeval.models.base import Answer, Slot
from automedeval.records.thoughts import own_text

NO_STATE = "the template of its questions shows nothing of a state that is one text"


def instructions(slot: Slot) -> str:
    """Return how a model of decisions is asked for a value: for what a slot names, or what stands at the end of the state."""
    if slot.name:
        return f"What is your verdict on {slot.name}?"
    return "Answer the question at the end of the input."


def odds_of(answer: Answer, options: Sequence[str]) -> dict[str, float] | None:
    """Return the odds of the options of a typed question, in their order; None where the answer does not tell them.

    An endpoint's are those of the first token of a text that says an option and nothing else: what more it says may take the
    option back ("No, I cannot tell", "4 of 10"), and what was cut off may have gone on.
    """
    if answer.error:
        return None
    if answer.probabilities:
        return answer.probabilities[0]
    said = _letters(own_text(answer.text))
    if answer.truncated or said not in map(_letters, options):
        return None
    odds = dict.fromkeys(options, 0.0)
    for piece, chance in answer.rivals:
        written = _letters(piece.decode(errors="replace"))
        begun = [option for option in options if written and _letters(option).startswith(written)]
        if len(begun) > 1:  # "1" of "10"
            return None
        for option in begun:
            odds[option] += chance
    total = sum(odds.values())
    if total < 0.5:  # the model was about to say something else
        return None
    return {option: chance / total for option, chance in odds.items()}


def _letters(text: str) -> str:
    """Return the letters and digits of a text."""
    return re.sub(r"[\W_]", "", text).casefold()
