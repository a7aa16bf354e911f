"""The chat checker: a language model says of each statement whether it is true by the reference or by books: yes, no, or maybe.

Models are weak on numbers: those are marked beside it, see `numbers`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from automedeval.evidence.findings import (
    CONTRADICTED,
    NOT_FOUND,
    SUPPORTED,
    UNREAD,
    Finding,
    StatedAnswers,
)
from automedeval.evidence.statements import REFERENCE, Evidence, Statement
from automedeval.models.arguments import ChatArguments, EncoderArguments, checked_model
from automedeval.models.base import TOO_LONG, Answer, Chat, Prompt, answer_groups
from automedeval.models.questions import Judgement, read_questions
from automedeval.records import RecordError, digest
from automedeval.records.text import readable

_QUESTIONS = read_questions("evidence")
BESIDE_REFERENCE, QUESTION = _QUESTIONS["reference"], _QUESTIONS["statement"]
OPINION = _QUESTIONS["opinion"]
YES, NO, MAYBE = QUESTION.options
LABEL = {YES: SUPPORTED, NO: CONTRADICTED, MAYBE: NOT_FOUND}
SURE = 3  # times as likely as yes is a no that counts: chosen on the sample and on two_bots
MOST = 8  # passages of books in a prompt; a reference is shown whole where it fits


class _Asked(NamedTuple):
    """A question on a statement: `near` are the passages that its prompt shows, nearest first.

    `over`: by how many tokens the prompt is too long.
    """

    statement: Statement
    near: list[int]
    prompt: Prompt
    over: int


@dataclass
class ChatChecker:
    """Check statements against passages with a chat, one typed question for each statement; `decided` gives its label.

    The odds are not divided by those of the question without a passage: on whole answers that called more right statements
    contradicted than it found wrong ones.
    """

    encoder: Any
    chat: Chat
    note = "How often this model is right was not measured."

    @property
    def name(self) -> str:
        return self.chat.name

    @cached_property
    def fingerprint(self) -> str:
        questions = (BESIDE_REFERENCE, QUESTION)
        wording = [[question.name, question.wording, question.options] for question in questions]
        return digest([7, self.encoder.fingerprint, self.chat.fingerprint, wording, SURE, MOST])

    def check(
        self, answers: StatedAnswers, wanted: Sequence[bool] | None = None
    ) -> Iterator[list[Finding] | None]:
        """Yield the findings of each answer, in order; None if it is not wanted, or an endpoint did not answer.

        Answers are given as statements, the passages that say what is true, and the question; those that are not `wanted` take
        part in the batches of a checkpoint. ChatError is raised if the chat cannot go on.
        """
        wanted = [True] * len(answers) if wanted is None else wanted
        questions = self._questions(answers)
        fitting = [
            [asked.prompt for asked in of_answer if asked.over <= 0] for of_answer in questions
        ]
        replies = answer_groups(fitting, wanted, self.chat.answer, self.chat.batched)
        got: dict[int, list[Answer]] = {
            index: [] for index, prompts in enumerate(fitting) if not prompts
        }
        for index, (answer, asked, want) in enumerate(zip(answers, questions, wanted)):
            while want and index not in got:
                place, group = next(replies)
                got[place] = group
            if not want or any(reply.failed for reply in got[index]):
                yield None
                continue
            given, findings = iter(got.pop(index)), {}
            for question in asked:
                is_long = question.over > 0
                unasked = Judgement(error=TOO_LONG.format(question.over))
                judged = unasked if is_long else QUESTION.read(next(given))
                findings[question.statement] = self._finding(question, judged, answer[1])
            yield [findings.get(text) or Finding(text, UNREAD) for text in answer[0]]

    def _questions(self, answers: StatedAnswers) -> list[list[_Asked]]:
        """Return the questions on the statements of each answer that are to be checked."""
        vectors = vectors_of(self.encoder, answers)
        asked: list[list[_Asked]] = []
        for statements, passages, patient in answers:
            rows = np.array([vectors[readable(passage.text)] for passage in passages])
            is_reference = any(passage.source == REFERENCE for passage in passages)
            most = len(passages) if is_reference else MOST
            asked.append([])
            for statement in _checked(statements):
                cosines = rows @ vectors[readable(statement.text)]
                near = np.argsort(-cosines, kind="stable")[:most].tolist()
                asked[-1].append(self._ask(statement, near, passages, patient))
        return asked

    def _ask(
        self, statement: Statement, near: list[int], passages: Sequence[Evidence], patient: str
    ) -> _Asked:
        """Return the question beside as many of the nearest passages as fit, in the order of their texts."""
        beside = [passages[index] for index in sorted(near)]
        is_reference = any(passage.source == REFERENCE for passage in beside)
        question = BESIDE_REFERENCE if is_reference else QUESTION
        text = " ".join(passage.text for passage in beside)
        state = {"question": patient, "passage": text, "statement": statement.text}
        prompt = question.prompt(state)
        (over,) = self.chat.overflow([prompt])
        if over > 0 and len(near) > 1:
            return self._ask(statement, near[:-1], passages, patient)
        return _Asked(statement, near, prompt, over)

    def _finding(self, asked: _Asked, judged: Judgement, passages: Sequence[Evidence]) -> Finding:
        """Return the answer; unread with the reason where it says nothing."""
        option = decided(judged)
        if option is None:
            return Finding(asked.statement._replace(unread=judged.error), UNREAD)
        passage = passages[asked.near[0]] if asked.near else None
        probability = (judged.probabilities or {}).get(option)
        return Finding(asked.statement, LABEL[option], probability, passage)


def decided(judged: Judgement) -> str | None:
    """Return the answer that counts: no if it is `SURE` times as likely as yes, else the likelier one of yes and maybe.

    A model that does not tell its probabilities is taken at its word. None where it answered nothing.
    """
    shares = judged.probabilities
    if not shares:
        return judged.option
    if shares[NO] and shares[NO] >= SURE * shares[YES]:
        return NO
    return max(YES, MAYBE, key=shares.__getitem__)


@dataclass
class OpinionChecker(ChatChecker):
    """Ask a chat whether statements are true without showing it anything: what it believes, not what is known."""

    note = "No evidence: every label is the opinion of the model, which may be wrong."

    @cached_property
    def fingerprint(self) -> str:
        return digest([self.chat.fingerprint, OPINION.name, OPINION.wording, OPINION.options])

    def _questions(self, answers: StatedAnswers) -> list[list[_Asked]]:
        questions = []
        for statements, _, _ in answers:
            asked = []
            for statement in _checked(statements):
                prompt = OPINION.prompt({"statement": statement.text})
                asked.append(_Asked(statement, [], prompt, self.chat.overflow([prompt])[0]))
            questions.append(asked)
        return questions


def _checked(statements: Sequence[Statement]) -> list[Statement]:
    return [statement for statement in statements if statement.unread is None]


def vectors_of(encoder: Any, answers: StatedAnswers) -> dict[str, np.ndarray]:
    """Return the vector of each text, made readable: of the statements that are checked, and of all evidence."""
    texts = []
    for asked, passages, _ in answers:
        texts += [statement.text for statement in _checked(asked)]
        texts += [passage.text for passage in passages]
    different = list(dict.fromkeys(map(readable, texts)))
    return dict(zip(different, encoder.encode(different)))


def load_checker(
    spec: str, encoder: EncoderArguments, chat: ChatArguments, opinion: bool = False
) -> ChatChecker:
    """Load a language model as a checker, which for an `opinion` is shown no evidence; RecordError: it cannot be loaded."""
    if checked_model(spec)[0] not in ("openai", "checkpoint"):
        raise RecordError(
            f"--checker {spec}: takes a checkpoint or openai:MODEL; leave it out to compare numbers alone"
        )
    if opinion:
        return OpinionChecker(None, chat.load(spec))
    return ChatChecker(encoder.load(chat.device), chat.load(spec))
