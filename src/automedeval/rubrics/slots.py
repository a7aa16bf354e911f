"""Translate verdicts between the slots of a prompt and the responses of a case.

`order` lists which response of the case stands in which slot: "Doctor k" is the response in slot k - 1, and of a pair "a" is
slot 0 and "b" slot 1; `word` is what the rubric calls a response, beside "Doctor". A ParsedAnswer goes by slots. A record
has scores in the order of the case's responses and choices as names of models; its rationale names the doctors by its own
order.
"""

from collections.abc import Sequence
from typing import Any

from automedeval.records import JsonObject, Verdict
from automedeval.records.types import by_response
from automedeval.rubrics.grammar import ParsedAnswer
from automedeval.rubrics.rationale import DOCTOR, permute

Order = Sequence[int]


def by_slot(values: Sequence[Any], order: Order) -> tuple:
    """Return the values of a case's responses in the order of the slots, None for a response that has no value."""
    return tuple(values[index] if index < len(values) else None for index in order)


def choice_names(models: Sequence[str], order: Order) -> dict[str, str]:
    """Return "a" and "b" → the models in these slots; a record has every other choice as it is."""
    return {letter: models[index] for index, letter in zip(order, "ab")}


def as_recorded(answer: ParsedAnswer, order: Order, models: Sequence[str]) -> JsonObject:
    """Return the rationale and the scores of a scored answer as a record holds them; `models` are the case's."""
    scores = answer.scores and list(by_response(answer.scores, order, len(models)))
    return {"rationale": answer.rationale, "scores": scores, "choices": None}


def renamed(text: str, former: Order, order: Order, word: str = DOCTOR) -> str:
    """Return a text on the doctors of the order `former` with the numbers of `order`, steps sorted anew."""
    return permute(text, [former.index(index) for index in order], word) if order else text


def reordered(
    answer: ParsedAnswer, former: Order, order: Order, word: str = DOCTOR
) -> ParsedAnswer:
    """Return a scored answer on the order `former` with the same responses in the slots of `order`."""
    if tuple(former) == tuple(order):
        return answer
    slots = [former.index(index) for index in order]
    scores = answer.scores and by_slot(answer.scores, slots)
    rationale = answer.rationale and permute(answer.rationale, slots, word)
    return ParsedAnswer(True, None, rationale, scores)


def seen_from(verdict: Verdict, order: Order, word: str = DOCTOR) -> ParsedAnswer:
    """Return a scored verdict with the responses in the slots of `order`; a score is None where the judge gave none."""
    rationale = verdict.rationale and renamed(verdict.rationale, verdict.order, order, word)
    scores: Any = verdict.scores and by_slot(verdict.scores, order)
    by_criterion = {
        name: by_slot(values, order) for name, values in (verdict.criterion_scores or {}).items()
    }
    return ParsedAnswer(
        verdict.valid, verdict.error, rationale, scores, criterion_scores=by_criterion or None
    )
