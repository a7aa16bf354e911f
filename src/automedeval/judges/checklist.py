"""Judge one response at a time by the criteria of its case: each is met, not met, or could not be read."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from automedeval.judges.base import WINDOW
from automedeval.judges.chat_judge import Judge, read_answer
from automedeval.judges.requests import Request
from automedeval.models.base import Prompt, Results, answer_groups
from automedeval.records import CaseCriterion, JsonObject, Verdict, digest
from automedeval.rubrics.rubric import READINGS, Rubric
from automedeval.stats.checklist import checklist_score


@dataclass
class ChecklistJudge(Judge):
    """Judge by the criteria of a case with a chat; the arguments are those of `Judge`, with a rubric of the mode checklist.

    An empty response meets nothing, be it what it should say or must not: nobody is asked.
    """

    @cached_property
    def fingerprint(self) -> str:
        return digest([super().fingerprint, 1])  # the number of criteria in a prompt

    @property
    def read_by(self) -> Rubric:
        """Return the rubric of a prompt, whatever its one criterion is."""
        return self.wording.about([CaseCriterion("", 1)])

    @property
    def window(self) -> int:
        # a checkpoint computes once what the prompts of a response begin with
        return 1 if self.chat.batched else WINDOW

    def _checklist(
        self,
        request: Request,
        met: list[bool | None],
        chances: list[float | None],
        **values: Any,
    ) -> Verdict:
        """Return the verdict on a response: whether it meets each criterion, with what probability, and its score.

        `met` and `chances` are None where a criterion could not be read.
        """
        points = [criterion.points for criterion in request.case.criteria]
        checklist: JsonObject = {"met": met, "met_probabilities": chances}
        for name, score in checklist_score(points, met)._asdict().items():
            checklist[name] = None if score is None else round(score, 6)
        return self.record(request, None, checklist=checklist, **values)

    def prompt(self, request: Request) -> list[Prompt]:
        """Return the prompts of one response, one for each criterion; none of an empty one."""
        if request.empty:
            return []
        return [
            self.render(request, self.wording.about([criterion]))
            for criterion in request.case.criteria
        ]

    def answer(self, prompts: Sequence[list[Prompt]], wanted: Sequence[bool]) -> Results:
        """Yield (index, answers in the order of its prompts) of each wanted response.

        One that failed stands for all, and so does one that exceeds a checkpoint's window.
        """
        is_local = self.chat.batched
        for index, group in answer_groups(prompts, wanted, super().answer):
            lost = (reply for reply in group if reply.failed or (is_local and reply.overlong))
            yield index, next(lost, group)

    def verdict(self, request: Request, answer: Any) -> Verdict:
        """Return the verdict of the answers to the prompts of a response; it is invalid if no criterion could be read."""
        if request.empty:
            count = len(request.case.criteria)
            return self._checklist(request, [False] * count, [0.0] * count)
        met: list[bool | None] = []
        chances: list[float | None] = []
        errors = []
        rationales = []
        truncated = False
        usage: Counter[str] = Counter()
        for reply in answer:
            usage.update(reply.usage and {"requests": 1} | reply.usage)
            reading = read_answer(reply, self.read_by, 1)
            truncated |= self.is_cut_off(reply, reading)
            is_met = chance = None
            if not reading.valid:
                errors.append(reading.error)
            else:
                is_met = READINGS[0] in (reading.choices or {}).values()
                # A line each.
                rationales.append(" ".join((reading.rationale or "").split()))
                if reply.probabilities:
                    chance = round(reply.probabilities[0][self.wording.choices[READINGS[0]]], 5)
            met.append(is_met)
            chances.append(chance)
        said: JsonObject = {
            "rationale": "\n".join(filter(None, rationales)) or None,
            "usage": dict(usage),
            "raw": "\n".join(reply.text for reply in answer),
            "truncated": truncated,
            "extra": {"unread": errors} if errors else {},
        }
        if len(errors) == len(met):
            return self.record(request, errors[0], **said)
        return self._checklist(request, met, chances, **said)
