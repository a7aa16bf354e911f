"""The chat checker: a language model says of each statement whether it is true by the nearest passages: yes, no, or maybe.

Models are weak on numbers: where rules can compare quantities these decide, see `rules`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from automedeval.evidence.checker import (
    CONTRADICTED,
    NEAR,
    NEAREST,
    NOT_FOUND,
    PACKAGED,
    SUPPORTED,
    UNREAD,
    Finding,
    SmallChecker,
    StatedAnswer,
    StatedAnswers,
    load_small_checker,
    vectors_of,
)
from automedeval.evidence.rules import agreement, contradiction
from automedeval.evidence.statements import Evidence, Statement
from automedeval.models.arguments import ChatArguments, EncoderArguments, checked_model
from automedeval.models.base import Answer, Chat, Prompt, answer_groups
from automedeval.models.checkpoints import user_models
from automedeval.models.questions import Judgement, read_questions
from automedeval.records import RecordError, digest, read_json
from automedeval.records.text import readable

_QUESTIONS = read_questions(resources.files(__package__) / "templates/questions.yaml")
QUESTION, OPINION = _QUESTIONS["statement"], _QUESTIONS["opinion"]
LABEL = dict(zip(QUESTION.options, (SUPPORTED, CONTRADICTED, NOT_FOUND)))
BLANK = "N/A"  # in the place of passages
MOST = 8  # passages in a prompt
RISK = 0.05  # the allowed share of statements that nothing contradicts and that are called contradicted
TOO_LONG = "the prompt is {} tokens longer than the context window"


class _Asked(NamedTuple):
    """A question on a statement: `near` are the passages that its prompt shows, nearest first, `close` those for the rules.

    `blank` is the same question without a passage, if odds are divided by it; `over`: by how many tokens it is too long.
    """

    statement: Statement
    near: list[int]
    close: list[int]
    prompt: Prompt
    blank: Prompt | None
    over: int


@dataclass
class ChatChecker:
    """Check statements against passages with a chat, one typed question for each statement.

    Where the chat tells probabilities, each is divided by that of the same question without a passage: a model leans to an
    answer before it has read anything (content-free calibration, Zhao et al. 2021, "Calibrate Before Use"). `threshold` is the
    least probability of a contradiction that is called one; None: the likeliest answer counts.
    """

    encoder: Any
    chat: Chat
    threshold: float | None = None

    @property
    def note(self) -> str:
        if self.threshold is None:
            return "Not calibrated: how often this model is right was not measured (automedeval calibrate --checker)."
        share = f"at most {100 * RISK:g} % of the statements that nothing contradicts are called contradicted"
        return f"Calibrated on the packaged sample: {share}. How many contradictions it misses was not measured."

    @property
    def name(self) -> str:
        return self.chat.name

    @cached_property
    def fingerprint(self) -> str:
        wording = [QUESTION.name, QUESTION.wording, QUESTION.options, BLANK]
        return digest(
            [4, self.encoder.fingerprint, self.chat.fingerprint, wording, MOST, self.threshold]
        )

    @property
    def certificate(self) -> Path:
        """Return where the user's cache keeps the certified threshold; another model or wording has another file."""
        return (
            user_models().parent / "checkers" / f"{replace(self, threshold=None).fingerprint}.json"
        )

    def kept(self) -> "ChatChecker":
        """Return it with the certified threshold of the user's cache, if there is one.

        What an endpoint serves is not known where it is not asked, such as for an estimate: its certificate is one of its name.
        """
        files = [self.certificate]
        if getattr(self.chat, "unasked", False):
            files = [
                each
                for each in files[0].parent.glob("*.json")
                if read_json(each).get("checker") == self.name
            ]
        return (
            replace(self, threshold=read_json(files[0])["threshold"])
            if files and files[0].is_file()
            else self
        )

    def wrong(self, findings: Sequence[Finding]) -> float:
        """Return the probability that an answer contradicts its evidence: that of its surest contradicted statement."""
        return max(
            (each.probability or 0.5 for each in findings if each.label == CONTRADICTED),
            default=0.0,
        )

    def estimate(self, answers: StatedAnswers) -> int:
        """Return about how many prompt tokens the questions on the statements take."""
        every = (each for asked in self._questions(answers) for each in asked)
        return self.chat.estimate(
            [text for each in every for text in (each.prompt, each.blank) if text]
        )

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
            [text for each in asked if each.over <= 0 for text in (each.prompt, each.blank) if text]
            for asked in questions
        ]
        replies = answer_groups(fitting, wanted, self.chat.answer, self.chat.batched)
        got: dict[int, list[Answer]] = {
            index: [] for index, prompts in enumerate(fitting) if not prompts
        }
        for index, (answer, asked, want) in enumerate(zip(answers, questions, wanted)):
            while want and index not in got:
                place, group = next(replies)
                got[place] = group
            if not want or any(each.failed for each in got[index]):
                yield None
                continue
            said, findings = iter(got.pop(index)), {}
            for each in asked:
                if each.over > 0:
                    judged = Judgement(error=TOO_LONG.format(each.over))
                else:
                    judged = QUESTION.read(next(said))
                    judged = judged.divided_by(QUESTION.read(next(said))) if each.blank else judged
                findings[each.statement] = self._finding(each, judged, answer)
            yield [findings.get(each) or Finding(each, UNREAD) for each in answer[0]]

    def _questions(self, answers: StatedAnswers) -> list[list[_Asked]]:
        """Return the questions on the statements of each answer that are to be checked."""
        vectors = vectors_of(self.encoder, answers)
        asked: list[list[_Asked]] = []
        for statements, passages, _ in answers:
            rows = np.array([vectors[readable(each.text)] for each in passages])
            asked.append([])
            for statement in (each for each in statements if each.unread is None):
                cosines = rows @ vectors[readable(statement.text)]
                near = np.argsort(-cosines, kind="stable")[:MOST].tolist()
                close = [index for index in near[:NEAREST] if cosines[index] >= NEAR]
                asked[-1].append(self._ask(statement, near, close, passages))
        return asked

    def _ask(
        self, statement: Statement, near: list[int], close: list[int], passages: Sequence[Evidence]
    ) -> _Asked:
        """Return the question beside as many of the nearest passages as fit, in the order of their texts."""
        text = " ".join(passages[index].text for index in sorted(near))
        prompt, blank = (
            QUESTION.prompt({"passage": each, "statement": statement.text})
            for each in (text, BLANK)
        )
        (over,) = self.chat.overflow([prompt])
        if over > 0 and len(near) > 1:
            return self._ask(statement, near[:-1], close, passages)
        return _Asked(statement, near, close, prompt, blank, over)

    def _finding(self, asked: _Asked, judged: Judgement, answer: StatedAnswer) -> Finding:
        """Return what quantities say, else the answer; unread with the reason where it says nothing."""
        statements, passages, question = answer
        statement, place = asked.statement, statements.index(asked.statement)
        quantities = (
            statement.text,
            passages,
            asked.close,
            question,
            statements[place - 1].text if place else "",
        )
        if seen := contradiction(*quantities):
            return Finding(statement, CONTRADICTED, 1.0, seen[1], seen[0])
        if judged.option is None:
            return Finding(statement._replace(unread=judged.error), UNREAD)
        yes, no, maybe = QUESTION.options
        option, odds, passage = judged.option, judged.probabilities, passages[asked.near[0]]
        unsure = odds is not None and odds[maybe] > odds[yes]
        if odds is not None and self.threshold is not None:
            option = no if odds[no] >= self.threshold else yes if odds[yes] >= 0.5 else maybe
        if option == no and agreement(
            *quantities
        ):  # the model is taken to be wrong on the numbers alone
            return Finding(statement, NOT_FOUND if unsure else SUPPORTED, None, passage)
        return Finding(statement, LABEL[option], odds[option] if odds else None, passage)


@dataclass
class OpinionChecker(ChatChecker):
    """Ask a chat whether statements are true without showing it anything: what it believes, not what is known."""

    note = "No evidence: every label is the opinion of the model, which may be wrong."

    @cached_property
    def fingerprint(self) -> str:
        return digest([self.chat.fingerprint, OPINION.name, OPINION.wording, OPINION.options])

    def _questions(self, answers: StatedAnswers) -> list[list[_Asked]]:
        checked = (
            [each for each in statements if each.unread is None] for statements, _, _ in answers
        )
        asked = (
            [(each, OPINION.prompt({"statement": each.text})) for each in some] for some in checked
        )
        return [
            [_Asked(each, [], [], it, None, self.chat.overflow([it])[0]) for each, it in some]
            for some in asked
        ]

    def _finding(self, asked: _Asked, judged: Judgement, *_: Any) -> Finding:
        if judged.option is None:
            return Finding(asked.statement._replace(unread=judged.error), UNREAD)
        return Finding(
            asked.statement, LABEL[judged.option], (judged.probabilities or {}).get(judged.option)
        )


def load_checker(
    spec: str, encoder: EncoderArguments, chat: ChatArguments, opinion: bool = False
) -> SmallChecker | ChatChecker:
    """Load "small" (the packaged checker), the folder of another, or a chat, which for an `opinion` is shown no evidence.

    RecordError if it cannot be loaded, or a small checker has no evidence: it has no opinion.
    """
    kind, model = checked_model(spec)
    if opinion and kind in ("openai", "decision", "checkpoint"):
        return OpinionChecker(None, chat.load(spec))
    if opinion:
        raise RecordError(
            f"--evidence none: --checker {spec} has no opinion; name a language model"
        )
    if kind == "small" or (Path(spec).is_dir() and not (Path(spec) / "config.json").is_file()):
        return load_small_checker(encoder, chat.device, Path(model or PACKAGED))
    if kind not in ("openai", "decision", "checkpoint"):
        raise RecordError(
            f"--checker {spec}: takes small, the folder of a small checker, openai:MODEL, decision:MODEL or a checkpoint"
        )
    return ChatChecker(encoder.load(chat.device), chat.load(spec)).kept()
