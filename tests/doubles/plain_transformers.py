"""A judge by plain transformers, to compare with: one prompt at a time, the whole sequence in one pass, no cache.

It takes the messages, the literals and the allowed values, and uses nothing else of this project.
"""

from collections.abc import Collection
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from automedeval import Judge
from automedeval.models.base import Free, Slot


class PlainTransformers:
    """A checkpoint in float32, which writes at most so many tokens, until one that ends a text."""

    def __init__(self, folder: Path, new_tokens: int, ends: Collection[int]):
        self.new_tokens = new_tokens
        self.ends = ends
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.network.eval()

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        return self.ids(
            self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    @torch.inference_mode()
    def after(self, ids: list[int], count: int) -> torch.Tensor:
        """Return the log-probabilities of the tokens that may follow each of the last `count` tokens."""
        return (
            self.network(input_ids=torch.tensor([ids]), use_cache=False)
            .logits[0, -count:]
            .log_softmax(-1)
        )

    def write(self, ids: list[int]) -> list[int]:
        """Return the prompt and what `generate` adds, without the token that ends it."""
        options = {"max_new_tokens": self.new_tokens, "do_sample": False}
        written = self.network.generate(torch.tensor([ids]), **options)[0].tolist()
        return written[:-1] if written[-1] in self.ends else written

    def values(self, prompt) -> list[dict[str, float]]:
        """Return the probability of each allowed value of each slot, the slots before with their most probable values."""
        ids, tail, values = self.prompt(prompt.messages), "", []
        for part in prompt.parts:
            if isinstance(part, Free):
                ids = self.write(ids + self.ids(tail))
                tail = ""
            elif isinstance(part, Slot):
                ways = [self.ids(tail + value) for value in part.values]
                shared = len(list(takewhile(lambda column: len(set(column)) == 1, zip(*ways))))
                heads = {tuple(way[:-1]) for way in ways}
                steps = {
                    head: self.after(ids + list(head), len(head) + 1 - shared) for head in heads
                }
                taken = [zip(steps[tuple(way[:-1])], way[shared:]) for way in ways]
                sums = [sum(step[token].item() for step, token in each) for each in taken]
                odds = torch.tensor(sums).softmax(0).tolist()
                values.append(dict(zip(part.values, odds)))
                tail += max(values[-1], key=values[-1].get)
            else:
                tail += part
        return values


def assert_equal(judge: Judge, plain: PlainTransformers, cases: list) -> list:
    """Assert that verdicts on cases judged together have the probabilities of plain transformers; return the verdicts."""
    verdicts = list(judge(cases))
    for case, verdict in zip(cases, verdicts, strict=True):
        (request,) = judge.plan(case)
        expected = plain.values(judge.prompt(request))
        for got, odds in zip(verdict.extra["probabilities"], expected, strict=True):
            assert got == pytest.approx(odds, abs=1e-4)
        if verdict.expected_scores:
            means = [sum(int(value) * p for value, p in odds.items()) for odds in expected]
            assert [verdict.expected_scores[slot] for slot in request.slots] == pytest.approx(
                means, abs=1e-4
            )
    return verdicts
