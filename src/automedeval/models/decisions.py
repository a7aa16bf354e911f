"""DecisionChat: a model behind an endpoint of typed decisions, which writes no text: it gives a probability for each option.

The endpoint is OpenAI's /v1/decisions, or /v1/systemone (`transformers serve`) where a server has no /v1/decisions.
"""

import json
import math
from typing import Any

import openai

from automedeval.models.base import Answer, Prompt
from automedeval.models.completions import token_counts
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.questions import NO_STATE, instructions
from automedeval.records import JsonObject, RecordError, digest
from automedeval.records.errors import ChatError


class DecisionChat(OpenAIChat):
    """Answer each slot of a prompt, or its options, by one question; ChatError for a prompt without either."""

    constrains = True
    writes = False
    _systemone = False  # whether the server has /v1/systemone alone

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fingerprint = digest(["decision", self.fingerprint])

    def body(self, prompt: Prompt) -> JsonObject:
        """Return a request for decisions: the messages, and a question with its options for each value."""
        if not prompt.slots:
            raise ChatError(
                f"decision:{self.model} writes no text: it answers questions with options alone"
            )
        questions = [
            {
                "type": "choice",
                "instructions": instructions(slot),
                "choices": [{"value": value} for value in slot.values],
            }
            for slot in prompt.slots
        ]
        messages = super().body(prompt)["messages"]
        return {"model": self.model, "input": messages, "questions": questions}

    def _send(self, body: JsonObject) -> bytes:
        if self._systemone:
            return json.dumps(self._by_systemone(body)).encode()
        try:
            return self.client.decisions.with_raw_response.create(**body).content
        except openai.NotFoundError as error:
            missing = error  # or there is no such model
        try:
            told = self._by_systemone(body)
            other = self._by_systemone(body | {"input": [{"content": "0"}]})
        except openai.NotFoundError:
            raise missing from None
        if told["answers"] == other["answers"]:
            raise ChatError(f"decision:{self.model}: {NO_STATE}")
        self._systemone = True
        return json.dumps(told).encode()

    def _by_systemone(self, body: JsonObject) -> JsonObject:
        """Return what /v1/systemone says to a request for decisions, its answers in the order of the questions."""
        questions = {
            str(number): {
                "type": "choice",
                "instructions": question["instructions"],
                "criteria": {choice["value"]: "" for choice in question["choices"]},
            }
            for number, question in enumerate(body["questions"])
        }
        state = "\n\n".join(message["content"] for message in body["input"])
        request = {"model": self.model, "state": state, "questions": questions}
        told: Any = self.client.post("/systemone", body=request, cast_to=object)
        return told | {"answers": [told["answers"][number] for number in questions]}

    def _read(self, completion: Any, body: JsonObject) -> Answer:
        answers = completion["answers"]
        questions = body["questions"]
        counts = completion.get("usage") or {}
        usage = token_counts(
            {
                "prompt_tokens": counts.get("input_tokens"),
                "completion_tokens": counts.get("output_tokens"),
            }
        )
        try:
            if len(answers) != len(questions):
                raise RecordError(f"{len(answers)} answers to {len(questions)} questions")
            odds = list(map(_odds, questions, answers))
        except RecordError as fault:
            return Answer(error=str(fault), usage=usage)
        return Answer.of_odds(odds, usage=usage)


def _odds(question: JsonObject, answer: JsonObject) -> dict[str, float]:
    """Return the probability of each option of a question; RecordError: it is refused, or they are no probabilities."""
    if answer["type"] == "refusal":
        raise RecordError("the model refuses the question")
    options = [choice["value"] for choice in question["choices"]]
    odds = answer["probabilities"]
    if not isinstance(odds, dict):  # OpenAI's
        odds = {choice["value"]: choice["probability"] for choice in odds}
    is_whole = odds.keys() == set(options) and math.isclose(sum(odds.values()), 1, abs_tol=0.05)
    if not is_whole or min(odds.values()) < 0:
        raise RecordError(f"no probabilities of {', '.join(options)}: {str(odds)[:200]}")
    return {option: odds[option] for option in options}
