"""Judge one response at a time by the criteria of its case: each is met, not met, or could not be read."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from automedeval.judges.chat_judge import Judge, read_answer
from automedeval.judges.requests import Request
from automedeval.models.base import Answer, Prompt, answer_groups
from automedeval.records import Verdict, digest
from automedeval.rubrics.rubric import READINGS
from automedeval.stats.checklist import checklist_score


@dataclass
class ChecklistJudge(Judge):
    """Judge by the criteria of a case with a chat; the arguments are those of `Judge`, with a rubric of the mode checklist.

    An empty response meets nothing, neither what it should say nor what it must not: nobody is asked.
    """

    @cached_property
    def fingerprint(self) -> str:
        return digest([super().fingerprint, 1])  # the number of criteria in a prompt

    def judge(
        self, requests: Sequence[Request], wanted: Sequence[bool] | None = None
    ) -> Iterator[tuple[int, Verdict]]:
        wanted = [True] * len(requests) if wanted is None else wanted
        empty = [request.case.responses[request.slots[0]].is_empty for request in requests]
        for index, want in enumerate(wanted):
            if want and empty[index]:
                count = len(requests[index].case.criteria)
                yield index, self._checklist(requests[index], [False] * count, [0.0] * count)
        yield from super().judge(requests, [want and not gone for want, gone in zip(wanted, empty)])

    def _checklist(
        self,
        request: Request,
        met: Sequence[bool | None],
        chances: Sequence[float | None],
        notes: dict[str, Any] | None = None,
        error: str | None = None,
        **values: Any,
    ) -> Verdict:
        """Return the verdict on a response: whether it meets each criterion, with what probability, and its score.

        `met` and `chances` are None where a criterion could not be read; `error` says why, where none could be.
        """
        if all(is_met is None for is_met in met):
            return self.record(request, error or "no criterion could be read", notes, **values)
        points = [criterion.points for criterion in request.case.criteria]
        score = checklist_score(points, met)._asdict()
        rounded = [None if chance is None else round(chance, 5) for chance in chances]
        checklist = {"met": list(met), "met_probabilities": rounded}
        checklist |= {
            name: None if value is None else round(value, 6) for name, value in score.items()
        }
        return self.record(request, None, notes, checklist=checklist, **values)

    def prompt(self, request: Request) -> list[Prompt]:
        """Return the prompts of one response, one for each criterion."""
        return [
            self.render(request, self.wording.about([criterion]))
            for criterion in request.case.criteria
        ]

    def overflow(self, prompts: Sequence[list[Prompt]]) -> list[int]:
        return [max(self.chat.overflow(group)) for group in prompts]

    def answer(
        self, prompts: Sequence[list[Prompt]], wanted: Sequence[bool]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (index, answers in the order of its prompts) of each wanted response; one that failed stands for all."""
        for index, group in answer_groups(prompts, wanted, super().answer, self.chat.batched):
            yield index, next((reply for reply in group if reply.failed), group)

    def verdict(
        self,
        request: Request,
        answer: Sequence[Answer] | Answer,
        notes: dict[str, Any] | None = None,
    ) -> Verdict:
        """Return the verdict of the answers to the prompts of a response; it is invalid if no criterion could be read."""
        if isinstance(answer, Answer):
            return self.record(request, answer.error, notes)
        met: list[bool | None] = []
        chances: list[float | None] = []
        readings = []
        for reply, criterion in zip(answer, request.case.criteria, strict=True):
            readings.append(reading := read_answer(reply, self.wording.about([criterion]), 1))
            met += [choice == READINGS[0] for choice in (reading.choices or {}).values()] or [None]
            odds = reply.probabilities if reading.valid else None
            chances.append(odds[0][self.wording.choices[READINGS[0]]] if odds else None)
        errors = [reading.error for reading in readings if not reading.valid]
        extra = (notes or {}) | (
            {"truncated": True} if any(reply.truncated for reply in answer) else {}
        )
        extra |= {"unread": errors} if errors else {}
        rationale = (
            "\n".join(
                reading.rationale for reading in readings if reading.valid and reading.rationale
            )
            or None
        )
        usage: Counter[str] = Counter()
        for reply in answer:
            usage.update(reply.usage and {"requests": 1} | reply.usage)
        return self._checklist(
            request, met, chances, extra, errors[0] if errors else None,
            rationale=rationale, usage=dict(usage), raw="\n".join(reply.text for reply in answer),
        )  # fmt: skip
