"""Score the answers of a harness with a judge, each answer by itself."""

from collections.abc import Sequence
from typing import Any

from automedeval.harness.logs import Answer
from automedeval.harness.questions import is_blank
from automedeval.harness.writing import score_of, unscored
from automedeval.judges.base import BaseJudge
from automedeval.models.base import ChatError
from automedeval.records import AutoMedEvalError, Case, Response, Verdict


def score_answers(judge: BaseJudge, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return the score of each answer, as `score_of` does; all are judged in one call.

    An answer that cannot be judged has no score, and its explanation says why; the others are judged without it. ChatError if
    the judge's model cannot go on, which is no answer's fault.
    """
    cases: dict[str, Case] = {}
    for answer in answers:
        name = answer.id if answer.epoch == 1 else f"{answer.id}/epoch-{answer.epoch}"
        while name in cases:
            name += " again"
        cases[name] = Case(name, answer.question, (Response("answer", answer.text),), answer.reference)
    verdicts: dict[str, list[Verdict]] = {name: [] for name in cases}
    refused = {name: "the question has no text" for name, case in cases.items() if is_blank(case.question)}
    groups = [[case for name, case in cases.items() if name not in refused]]
    for group in groups:
        try:
            for verdict in judge(group):
                verdicts[verdict.case_id].append(verdict)
        except ChatError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one answer, the others are judged
            rest = [case for case in group if not verdicts[case.id]]
            if len(group) > 1:
                groups += [[case] for case in rest]
            elif rest:
                kind = "" if isinstance(error, AutoMedEvalError) else f"{type(error).__name__}: "
                refused[rest[0].id] = f"{rest[0].id}: {kind}{error}"
    return [unscored(refused[name]) if name in refused else score_of(verdicts[name], 0) for name in cases]
