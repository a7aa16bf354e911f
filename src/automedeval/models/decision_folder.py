"""LocalDecisions: a checkpoint with a decision.json, asked as transformers' `pipeline("decision")` asks it.

The folder says how a question is written (decision_template.jinja), by which tokens it is answered, and at which temperature.
Unlike the pipeline it answers in batches, and computes once what all prompts begin with.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoConfig
from transformers.decision import DecisionConfig, label_token_ids
from transformers.models.auto.modeling_auto import MODEL_FOR_DECISION_MAPPING

from automedeval.models.base import (
    Answer,
    Answers,
    Ids,
    Prompt,
    Slot,
    Wanted,
    answer_groups,
)
from automedeval.models.checkpoints import DECISION
from automedeval.models.decoding import Row
from automedeval.models.local import LocalChat
from automedeval.models.questions import NO_STATE, instructions
from automedeval.records import RecordError, foreign_errors_at


@dataclass(kw_only=True)
class Question(Row):
    """A question, and the tokens of its labels."""

    labels: Ids


@dataclass
class LocalDecisions(LocalChat):
    """Answer each slot of a prompt, or its options, by one question; a prompt without either as any checkpoint does.

    RecordError if the folder has a head or an adapter for decisions, or its settings are not for this tokenizer.
    """

    writes = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._decision = DecisionConfig.from_pretrained(self.folder)
        self._heat = self._decision.temperature.get("choice", 1.0)
        if not 0 < self._heat < math.inf:
            raise RecordError(
                f"{self.folder / DECISION}: not for this model: the temperature {self._heat:g}"
            )
        config = AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
        own: Any = MODEL_FOR_DECISION_MAPPING.get(type(config), None)
        heads = own.config_class.extra_config_files if own else ()
        if self._decision.adapter or any((self.folder / name).is_file() for name in heads):
            raise RecordError(
                f"{self.folder}: a head or an adapter answers its questions: serve it by `transformers serve`, "
                "and name it decision:MODEL with --base_url"
            )

    def _asked(self, prompt: Prompt) -> list[Question]:
        """Return the question of each slot of a prompt, as the pipeline asks it; RecordError if its state is not shown."""
        if self._is_blind:
            raise RecordError(f"{self.folder / DECISION}: {NO_STATE}")
        state = "\n\n".join(message["content"] for message in prompt.messages)
        return [self._question(state, slot) for slot in prompt.slots]

    @cached_property
    def _is_blind(self) -> bool:
        """Whether the template shows nothing of a state that is a text."""
        first, second = (self._question(state, Slot("", ("Yes", "No"))) for state in "01")
        return first.ids == second.ids

    def _question(self, state: str, slot: Slot) -> Question:
        question = {
            "type": "choice",
            "instructions": instructions(slot),
            "criteria": dict.fromkeys(slot.values, ""),
        }
        request = {"state": state, "questions": {"0": question}}
        place = f"{self.folder / DECISION}: not for this model"
        with foreign_errors_at(place, TypeError, ValueError, TemplateError):
            ((inputs, (parsed,)),) = self._decision.prepare_inputs(request, self.tokenizer)
            labels = label_token_ids(self.tokenizer, tuple(parsed.labels))
        ids = inputs["input_ids"][0, : int(inputs["marks"][0])].tolist()
        return Question(ids=ids, labels=labels)

    def answer(self, prompts: Sequence[Prompt], wanted: Wanted = None) -> Answers:
        if not any(prompt.slots for prompt in prompts):
            yield from super().answer(prompts, wanted)
            return
        asked = [self._asked(prompt) for prompt in prompts]
        ask = partial(self._by_batches, compute=self._answer_questions)
        for index, shares in answer_groups(asked, wanted or [True] * len(prompts), ask):
            if fault := next((share for share in shares if isinstance(share, Answer)), None):
                yield index, fault
                continue
            slots = prompts[index].slots
            odds = [dict(zip(slot.values, chances)) for slot, chances in zip(slots, shares)]
            read = sum(len(question.ids) for question in asked[index])
            yield index, Answer.of_odds(odds, usage={"prompt_tokens": read, "completion_tokens": 0})

    @torch.inference_mode()
    def _answer_questions(self, questions: list[Question]) -> list[list[float]]:
        """Return the probabilities of the labels of each question."""
        batch = self._batch(questions, self.forward_tokens)
        batch.feed([question.ids for question in questions])
        return [
            (logits[question.labels] / self._heat).softmax(0).tolist()
            for question, logits in zip(questions, batch.logits)
        ]
