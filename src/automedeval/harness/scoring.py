"""Scores of single answers, by a judge that scores inside inspect_ai."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from automedeval.judges.base import BaseJudge
from automedeval.records import AutoMedEvalError, Case, JsonObject, Verdict, key_of
from automedeval.records.errors import ChatError

UNREAD = "the answer, or the verdict on a criterion, is unread"


def score_of(verdicts: Sequence[Verdict], refused: str | None = None) -> JsonObject:
    """Return the score of an answer, the only one of its case: value, explanation, verdicts, valid.

    `value` is the mean of the scores of the verdicts that give one, NaN if none does. `explanation` has the first rationale,
    and why there is no score: `refused`, or what the verdicts say. `verdicts` and `valid` are numbers of verdicts: all, and
    those that give a score.
    """
    values = []
    rationale = None
    reasons = Counter[str]()
    for verdict in verdicts:
        value = verdict.value(0)
        if value is None:
            reasons[verdict.error or UNREAD] += 1
        else:
            values.append(value)
            rationale = rationale or verdict.rationale
    why = refused or "; ".join(reasons)
    if values and why:
        why = f"{reasons.total()} of {len(verdicts)} verdicts give no score: {why}"
    return {
        "value": fmean(values) if values else float("nan"),
        "explanation": "\n\n".join(filter(None, (rationale, why))) or None,
        "verdicts": len(verdicts),
        "valid": len(values),
    }


def warn_of_references(judge: BaseJudge, references: Iterable[str | None]) -> None:
    """Warn that a judge does not read the references that it is given."""
    if any(references) and not judge.reads_reference:
        warnings.warn(
            f"{judge.name} does not read the reference; another judge or rubric does", stacklevel=3
        )


def score_answers(judge: BaseJudge, answers: Sequence[Case]) -> list[JsonObject]:
    """Return the score of each answer, a case with one response, as `score_of` does; all are judged in one call.

    An answer that cannot be judged has no score, and its explanation says why; the others are judged without it. ChatError if
    the judge's model cannot go on, which is no answer's fault.
    """
    warn_of_references(judge, (answer.reference for answer in answers))
    cases = {}
    for answer in answers:
        name = answer.id
        while name in cases:
            name += " again"
        cases[name] = replace(answer, id=name)
    verdicts = defaultdict[str, list[Verdict]](list)
    refused = {
        name: "the question has no text"
        for name, case in cases.items()
        if not key_of(case.question)
    }
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
    return [score_of(verdicts[name], refused.get(name)) for name in cases]
