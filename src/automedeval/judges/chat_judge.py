"""What the judges share that ask a chat by a rubric."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from automedeval.judges.prompt_judge import PromptJudge
from automedeval.judges.requests import Request, plan_requests
from automedeval.models.base import Answer, Chat, Prompt
from automedeval.records import Case, RecordError, digest
from automedeval.rubrics import Rubric, read_rubric
from automedeval.rubrics.grammar import ParsedAnswer, answer_parts, answer_schema, parse_verdict, reading_from_values
from automedeval.rubrics.prompts import judge_messages


def read_answer(answer: Answer, rubric: Rubric, slots: int) -> ParsedAnswer:
    """Return what an answer says by a rubric of the responses in so many slots, or why it cannot be read."""
    if answer.error:
        return ParsedAnswer(False, answer.error)
    if answer.values is not None:
        return reading_from_values(list(answer.values), rubric, answer.free or None)
    return parse_verdict(answer.text, rubric, slots, truncated=answer.truncated)


@dataclass
class ChatJudge(PromptJudge):
    """A judge that asks a chat by a rubric.

    Args:
        chat: the model that answers the prompts.
        rubric: a `Rubric`, a packaged rubric's id or the path of a YAML file.
        rationale: False asks for scores or choices alone.
        score_decoding: "constrained" fixes the form of the answer and chooses each score among the allowed values, which
            checkpoints and some servers can; "free" parses what the model writes; "auto" is constrained where the chat can.
        orders, seed, runs, baseline, models: see `plan_requests`.
        on_overlong: see `PromptJudge`.
        name: what verdicts record as their judge; by default the chat's name.

    Raises:
        RecordError: constrained decoding with a chat that cannot.
    """

    wording: Rubric = field(init=False, repr=False)
    chat: Chat
    rubric: Rubric | str = "automedeval"
    rationale: bool = True
    score_decoding: str = "auto"
    orders: str = "1"
    seed: int = 0
    runs: int = 1
    baseline: str | None = None
    models: Sequence[str] | None = None
    on_overlong: str = "error"
    name: str | None = None

    def __post_init__(self) -> None:
        self.wording = self.rubric = read_rubric(self.rubric) if isinstance(self.rubric, str) else self.rubric
        self.name = self.name or self.chat.name
        self.rubric_name = self.wording.name
        self.rationale = self.rationale and self.wording.rationale
        if self.score_decoding == "constrained" and not self.chat.constrains:
            raise RecordError(
                "--score_decoding constrained needs a checkpoint, or a server that constrains: "
                f"{self.chat.name} writes freely, and its text is parsed"
            )
        if self.score_decoding == "auto":
            self.score_decoding = "constrained" if self.chat.constrains else "free"

    @cached_property
    def fingerprint(self) -> str:
        settings = [self.chat.fingerprint, self.wording.fingerprint, self.rationale]
        return digest([*settings, self.score_decoding, self.overlong_setting])

    def plan(self, case: Case) -> list[Request]:
        return plan_requests(case, self.wording, self.orders, self.seed, self.runs, self.baseline, self.models)

    def render(self, request: Request, rubric: Rubric, texts: Sequence[str] | None) -> Prompt:
        """Return the prompt of a request by a rubric; `texts` as in `prompt`."""
        case = request.case
        texts = [case.responses[index].text for index in request.slots] if texts is None else texts
        rationale = self.rationale if request.rationale is None else request.rationale
        messages = judge_messages(rubric, case.question, texts, case.reference, rationale)
        parts = tuple(answer_parts(rubric, len(texts), rationale))
        constrained = parts if self.score_decoding == "constrained" else None
        label = f"{self.rubric_name}:{self.wording.fingerprint}"
        return Prompt(messages, constrained, answer_schema(parts), request.run, label)
