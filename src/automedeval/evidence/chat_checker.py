"""The chat checker: any model that answers prompts reads each statement beside numbered passages, and says label and number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.evidence.checker import (
    CONTRADICTED,
    NOT_FOUND,
    PACKAGED,
    SUPPORTED,
    UNREAD,
    Finding,
    SmallChecker,
    load_small_checker,
)
from automedeval.evidence.statements import Passage, Statement
from automedeval.metrics.embedding import readable
from automedeval.models.arguments import ChatArguments, EncoderArguments, checked_model
from automedeval.models.base import Answer, Chat, Part, Prompt, Slot, answer_groups, own_text
from automedeval.models.constraints import text_odds
from automedeval.records import RecordError, digest
from automedeval.records.gone import explain
from automedeval.rubrics.grammar import answer_schema, json_objects
from automedeval.rubrics.prompts import statement_messages, template_fingerprint

WORDS = (CONTRADICTED, SUPPORTED, NOT_FOUND)
MOST = 8  # passages in a prompt
TOO_LONG = "the prompt is {} tokens longer than the context window"
CUT_OFF = "the answer was cut off at its token limit"


@dataclass(frozen=True)
class _Question:
    """A statement with the passages that its prompt numbers, and by how many tokens the prompt is too long."""

    statement: Statement
    passages: Sequence[Passage]
    prompt: Prompt
    over: int


@dataclass
class ChatChecker:
    """Check statements against passages with a chat, one prompt for each statement.

    Args:
        encoder: an `Encoder`, for the nearest passages.
        chat: the model that answers the prompts.
    """

    encoder: Any
    chat: Chat
    threshold = None
    note = "A chat said what contradicts a statement. How often it is right was not measured."

    @property
    def name(self) -> str:
        """Return what records name as their checker."""
        return self.chat.name

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest of everything that changes a finding."""
        prompt = [template_fingerprint("statement"), MOST, self.chat.constrains]
        return digest([1, self.encoder.fingerprint, self.chat.fingerprint, *prompt])

    def check(
        self,
        answers: Sequence[tuple[Sequence[Statement], Sequence[Passage], str]],
        wanted: Sequence[bool] | None = None,
    ) -> Iterator[list[Finding] | None]:
        """Yield the findings of each answer, in order; None if it is not wanted, or an endpoint did not answer.

        ChatError is raised if the chat cannot go on.

        Args:
            answers: of each its statements, the passages that say what is true, and the question.
            wanted: which of them are asked about; None: all. The others take part in the batches of a checkpoint.
        """
        wanted = [True] * len(answers) if wanted is None else wanted
        questions = self._questions(answers)
        fitting = [[each.prompt for each in asked if each.over <= 0] for asked in questions]
        replies = answer_groups(fitting, wanted, self.chat.answer)
        got: dict[int, list[Answer]] = {index: [] for index, prompts in enumerate(fitting) if not prompts}
        for index, ((statements, _, _), asked, want) in enumerate(zip(answers, questions, wanted)):
            while want and index not in got:
                place, group = next(replies)
                got[place] = group
            if not want or any(each.failed for each in got[index]):
                yield None
                continue
            said = iter(got.pop(index))
            findings = {each.statement: self._finding(each, said) for each in asked}
            yield [findings.get(each) or Finding(each, UNREAD) for each in statements]

    def _questions(
        self, answers: Sequence[tuple[Sequence[Statement], Sequence[Passage], str]]
    ) -> list[list[_Question]]:
        """Return the prompts on the statements of each answer that are to be checked."""
        texts = [each.text for statements, _, _ in answers for each in statements if each.unread is None]
        texts += [passage.text for _, passages, _ in answers for passage in passages]
        different = list(dict.fromkeys(map(readable, texts)))
        vectors = dict(zip(different, self.encoder.encode(different)))
        asked: list[list[_Question]] = []
        for statements, passages, question in answers:
            asked.append([])
            rows = np.array([vectors[readable(each.text)] for each in passages])
            for statement, before in zip(statements, ["", *(each.text for each in statements)]):
                if statement.unread is None:
                    near = np.argsort(-(rows @ vectors[readable(statement.text)]), kind="stable")[:MOST].tolist()
                    asked[-1].append(self._question(statement, before, near, passages, question))
        return asked

    def _question(
        self, statement: Statement, before: str, near: list[int], passages: Sequence[Passage], question: str
    ) -> _Question:
        """Return the prompt with as many of the nearest passages as fit, in the order of their texts."""
        while True:
            shown = [passages[index] for index in sorted(near)]
            numbers = tuple(str(number) for number in range(1, len(shown) + 1))
            parts: tuple[Part, ...]
            parts = ('{"label": "', Slot("label", WORDS), '", "passage": ', Slot("passage", numbers), "}")
            messages = statement_messages(question, [each.text for each in shown], before, statement.text)
            constrained = parts if self.chat.constrains else None
            prompt = Prompt(messages, constrained, answer_schema(parts), label="statement")
            (over,) = self.chat.overflow([prompt])
            if over <= 0 or len(near) == 1:
                return _Question(statement, shown, prompt, over)
            near = near[:-1]

    def _finding(self, asked: _Question, replies: Iterator[Answer]) -> Finding:
        """Return what the next reply says; unread with the reason where it says nothing."""
        if asked.over > 0:
            read: Any = TOO_LONG.format(asked.over)
        else:
            read = read_label(next(replies), len(asked.passages))
        if isinstance(read, str):
            return Finding(asked.statement._replace(unread=read), UNREAD)
        self.chat.accepted = True
        label, number, probability = read
        return Finding(asked.statement, label, probability, asked.passages[number - 1] if number else None)


def read_label(answer: Answer, count: int) -> tuple[str, int | None, float | None] | str:
    """Return the label of an answer, the number of its passage among `count` and the label's probability, where it is known.

    Of a text the last JSON object counts. What cannot be read gives the reason in words. "not_found" needs no passage.
    """
    if answer.error:
        return answer.error
    if answer.values is not None:
        label, number = answer.values
        return label, int(number), answer.probabilities[0][label] if answer.probabilities else None
    text, reply, end = last_object(answer)
    if answer.truncated and text[end:].strip("` \n"):
        return CUT_OFF
    if reply.keys() != {"label", "passage"} or '"label"' in text[end:]:
        return "no JSON object with a label and a passage at the end of the answer"
    label, passage = reply["label"], reply["passage"]
    if label not in WORDS:
        return f"the label {str(label)[:40]!r} is not one of {', '.join(WORDS)}"
    there = isinstance(passage, float) and passage in range(1, count + 1)  # numbers are read as floats
    if not there and label != NOT_FOUND:
        return f"there is no passage {str(passage)[:40]!r}"
    odds = text_odds(answer, text[: max(0, text.rfind(label, 0, end))], WORDS, label)
    return label, int(passage) if there else None, odds.chances[label] if odds else None


def last_object(answer: Answer) -> tuple[str, dict[Any, Any], int]:
    """Return the model's text, its last JSON object, an empty one if it has none, and where that ends."""
    text = own_text(answer.text)
    objects: list[tuple[dict[Any, Any], int]] = list(json_objects(text))
    return (text, *(objects[-1] if objects else ({}, 0)))


def load_checker(spec: str, encoder: EncoderArguments, chat: ChatArguments) -> SmallChecker | ChatChecker:
    """Load the checker that a name stands for; RecordError if there is none, or it cannot be loaded.

    Args:
        spec: "small" (the packaged one), the folder of another small checker, `openai:MODEL`, or a checkpoint.
        chat: how a chat is loaded and asked.
    """
    if spec.startswith("split:"):
        raise RecordError(explain(f"--checker {spec}", "split:"))
    kind, model = checked_model(spec)
    if kind == "small" or (Path(spec).is_dir() and not (Path(spec) / "config.json").is_file()):
        folder = Path(model) if kind != "small" else Path(model or PACKAGED)
        return load_small_checker(encoder, chat.device, folder)
    if kind not in ("openai", "checkpoint"):
        raise RecordError(f"--checker {spec}: takes small, the folder of a small checker, openai:MODEL or a checkpoint")
    network = encoder.load(chat.device)
    return ChatChecker(network, chat.load(spec))
