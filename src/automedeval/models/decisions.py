"""DecisionChat: a model behind an endpoint of typed decisions, which writes no text: it gives a probability for each option.

`client.decisions.create` of OpenAI, or `/v1/systemone` (`transformers serve`) where a server has no `/v1/decisions`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import openai

from automedeval.models.base import Answer, Prompt
from automedeval.models.endpoint import OpenAIChat, sent
from automedeval.models.questions import NO_STATE, instructions
from automedeval.records import digest
from automedeval.records.errors import ChatError

REFUSED = "the model refuses the question"


@dataclass
class DecisionChat(OpenAIChat):
    """Answer each slot of a prompt, or its options, by one question; ChatError for a prompt without either."""

    constrains = True
    writes = False
    systemone: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fingerprint = digest(["decision", self._fingerprint])

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Return a request for decisions: the messages, and a question with its options for each value."""
        if not prompt.slots:
            raise ChatError(
                f"decision:{self.model} writes no text: it answers questions with options alone"
            )
        questions = [
            {"type": "choice", "instructions": instructions(slot.name)}
            | {"choices": [{"value": value} for value in slot.values]}
            for slot in prompt.slots
        ]
        messages: Any = sent(prompt)
        for message in messages:
            if message["role"] == "assistant":  # what the model itself has said is taken in parts
                message["content"] = [{"type": "output_text", "text": message["content"]}]
        return {"model": self.model, "input": messages, "questions": questions}

    def send(self, body: dict[str, Any]) -> bytes:
        if not self.systemone:
            try:
                return self.client.decisions.with_raw_response.create(**body).content
            except openai.NotFoundError as error:
                try:
                    answered = self._systemone(body)
                    other = self._systemone(body | {"input": [{"content": "0"}]})
                except openai.NotFoundError:
                    raise error from None  # which may say that there is no such model
            if json.loads(answered)["answers"] == json.loads(other)["answers"]:
                raise ChatError(f"decision:{self.model}: {NO_STATE}")
            self.systemone = True
            return answered
        return self._systemone(body)

    def _systemone(self, body: dict[str, Any]) -> bytes:
        contents = [message["content"] for message in body["input"]]
        state = "\n\n".join(
            content if isinstance(content, str) else content[0]["text"] for content in contents
        )
        questions = {
            str(number): {"type": "choice", "instructions": question["instructions"]}
            | {"criteria": {choice["value"]: "" for choice in question["choices"]}}
            for number, question in enumerate(body["questions"])
        }
        asked = {"model": body["model"], "state": state, "questions": questions}
        return json.dumps(self.client.post("/systemone", body=asked, cast_to=object)).encode()

    def read(self, completion: Mapping[str, Any], body: Mapping[str, Any]) -> Answer:
        """Return the likeliest option of each question with all probabilities; an error if one is refused or has none."""
        answers, usage = completion["answers"], completion.get("usage") or {}
        counts = (
            ("prompt_tokens", usage.get("input_tokens")),
            ("completion_tokens", usage.get("output_tokens")),
        )
        tokens = {name: count for name, count in counts if isinstance(count, int)}
        if isinstance(answers, Mapping):
            answers = [answers[str(number)] for number in range(len(answers))]
        asked = [
            [choice["value"] for choice in question["choices"]] for question in body["questions"]
        ]
        odds = []
        if len(answers) != len(asked):
            error = f"{len(answers)} answers to {len(asked)} questions"
            return Answer(error=error, refused=True, usage=tokens)
        for options, answer in zip(asked, answers):
            if answer["type"] == "refusal":
                return Answer(error=REFUSED, refused=True, usage=tokens)
            pairs = answer["probabilities"]
            if not isinstance(pairs, Mapping):
                pairs = [(choice["value"], choice["probability"]) for choice in pairs]
            chances = dict(pairs)
            known = sorted(chances) == sorted(options) and len(pairs) == len(options)
            if not (
                known and min(chances.values()) >= 0 and abs(sum(chances.values()) - 1) < 0.05
            ):  # False for NaN
                error = f"no probabilities of {', '.join(options)}: {str(pairs)[:200]}"
                return Answer(error=error, refused=True, usage=tokens)
            odds.append({option: float(chances[option]) for option in options})
        return Answer.of_odds(odds, tokens)
