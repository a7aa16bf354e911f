"""What the judges share that ask a chat by a rubric."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from automedeval.judges.prompt_judge import PromptJudge
from automedeval.judges.requests import Request, plan_requests
from automedeval.metrics.embedding import pieces, readable
from automedeval.models.base import Answer, Chat, Prompt
from automedeval.records import Case, RecordError, Verdict, digest, question_text
from automedeval.rubrics import Rubric, read_rubric
from automedeval.rubrics.grammar import ParsedAnswer, answer_parts, answer_schema, parse_verdict, reading_from_values
from automedeval.rubrics.prompts import judge_messages, template_fingerprint
from automedeval.rubrics.questions import Search

PASSAGES = 2  # of books, that are shown for the question and for each response


def read_answer(answer: Answer, rubric: Rubric, slots: int) -> ParsedAnswer:
    """Return what an answer says by a rubric of the responses in so many slots, or why it cannot be read."""
    if answer.error:
        return ParsedAnswer(False, answer.error)
    if answer.values is not None:
        return reading_from_values(list(answer.values), rubric, answer.free or None)
    return parse_verdict(answer.text, rubric, slots, truncated=answer.truncated)


@dataclass
class ChatJudge(PromptJudge):
    """A judge that asks a chat by a rubric; RecordError for constrained decoding with a chat that cannot.

    Args:
        rubric: a `Rubric`, a packaged rubric's id or the path of a YAML file.
        rationale: False asks for scores or choices alone.
        score_decoding: "constrained" fixes the form of the answer and chooses each score among the allowed values, which
            checkpoints and some servers can; "free" parses what the model writes; "auto" is constrained where the chat can.
        orders, seed, runs, baseline, models: see `plan_requests`.
        on_overlong: see `PromptJudge`.
        name: what verdicts record as their judge; by default the chat's name.
        search: finds passages of books; those nearest to the question and to the responses stand in the prompt, and in the
            verdict's `knowledge`. None: nothing is looked up. `store` is the fingerprint of the store and the search.
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
    search: Search | None = None
    store: str = ""

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
        self._found = lru_cache(maxsize=4096)(self._look_up)

    @cached_property
    def fingerprint(self) -> str:
        settings = [self.chat.fingerprint, self.wording.fingerprint, self.rationale]
        books = [self.store, template_fingerprint("completion_chain"), PASSAGES] if self.search else []
        return digest([*settings, self.score_decoding, self.overlong_setting, *books])

    def plan(self, case: Case) -> list[Request]:
        return plan_requests(case, self.wording, self.orders, self.seed, self.runs, self.baseline, self.models)

    def render(self, request: Request, rubric: Rubric, texts: Sequence[str] | None) -> Prompt:
        """Return the prompt of a request by a rubric; `texts` as in `prompt`."""
        case = request.case
        texts = [case.responses[index].text for index in request.slots] if texts is None else texts
        rationale = self.rationale if request.rationale is None else request.rationale
        retrieved = (
            [passage for each in self.knowledge(request) for passage in each["passages"]] if self.search else None
        )
        passages = None if retrieved is None else list({passage["id"]: passage for passage in retrieved}.values())
        messages = judge_messages(rubric, case.question, texts, case.reference, rationale, passages)
        parts = tuple(answer_parts(rubric, len(texts), rationale))
        constrained = parts if self.score_decoding == "constrained" else None
        label = f"{self.rubric_name}:{self.wording.fingerprint}"
        return Prompt(messages, constrained, answer_schema(parts), request.run, label, request.completion)

    def shown(self, request: Request) -> str:
        """Return the prompt of a request as the model reads it, its responses shortened where it would be too long."""
        prompt: Any = self.prompt(request)
        if self.on_overlong == "clip" and max(self.overflow([prompt])) > 0:
            prompt, *_ = self._clip(request)
        # A checklist asks several times.
        return "\n\n".join(map(self.chat.shown, prompt if isinstance(prompt, list) else [prompt]))

    def knowledge(self, request: Request) -> list[dict[str, Any]]:
        """Return what books say on the question and on each response that is shown, as verdicts record it.

        A query is "question", or the model of the response; the passages do not depend on the order of the responses.
        """
        # Paper: the teacher asks for knowledge (Algorithm 1). A judge is shown it at once, and asks nothing.
        case = request.case
        texts = [("question", question_text(case.question))]
        texts += [(case.models[index], case.responses[index].text) for index in sorted(request.slots)]
        return [{"query": name, "passages": [each.to_dict() for each in self._found(text)]} for name, text in texts]

    def _look_up(self, text: str) -> list[Any]:
        """Return the passages that are nearest to any piece of a text: an encoder reads no more than a piece of it."""
        assert self.search is not None
        hits = sorted(
            (each for some in self.search(pieces(readable(text))) for each in some), key=lambda each: each.score
        )
        return sorted({each.id: each for each in hits}.values(), key=lambda each: -each.score)[:PASSAGES]

    def record(self, request: Request, error: str | None, notes: dict[str, Any] | None, **values: Any) -> Verdict:
        knowledge = {"knowledge": self.knowledge(request)} if self.search else {}
        return super().record(request, error, knowledge | (notes or {}), **values)
