"""Write verdicts back as scores that a harness reads, by the ids of the log in which the response was found."""

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from automedeval.records import Case, RecordError, Verdict

FAILED = "grader_failed"  # inspect_ai's word for a grader whose answer cannot be read
NAME = "automedeval"  # of the score in the lines for lm-evaluation-harness


def scored_answers(cases: Iterable[Case], verdicts: Sequence[Verdict], model: str | None) -> list[dict[str, Any]]:
    """Return one record for each judged response of a model: id, epoch, value, explanation, verdicts, valid.

    The last four are those of `score_of`. A response without a verdict has no record.

    Args:
        model: whose responses; None if the cases have responses of one model.

    Raises:
        RecordError: no such model, or several and none named; a response that is not of a log; a verdict without scores.
    """
    by_case: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_case.setdefault(verdict.case_id, []).append(verdict)
    cases = list(cases)
    models = list(dict.fromkeys(name for case in cases for name in case.models))
    if model is None and len(models) == 1:
        model = models[0]
    if model not in models:
        raise RecordError(f"--model must be one of {', '.join(models)}: a log has the answers of one model")
    found = []
    for case in cases:
        index = case.models.index(model) if model in case.models else None
        given = [each for each in by_case.get(case.id, ()) if index in each.order]
        if given:
            found.append(_places(case, index) | score_of(given, index))
    if not found:
        raise RecordError(f"no verdict shows a response of {model!r}")
    return found


def _places(case: Case, index: int) -> dict[str, Any]:
    place = case.responses[index].extra
    if "harness_id" not in place:
        raise RecordError(
            f"case {case.id!r}: the response of {case.models[index]!r} was not read from a log: give cases.jsonl"
        )
    return {"id": place["harness_id"], "epoch": place["harness_epoch"]}


def score_of(verdicts: Sequence[Verdict], index: int) -> dict[str, Any]:
    """Return the score of one response by all verdicts that show it: value, explanation, verdicts, valid.

    `value` is the mean of the valid verdicts' expected scores, or scores. It is NaN if no verdict is valid; `explanation` is
    then the error. `verdicts` and `valid` are numbers of verdicts.

    Raises:
        RecordError: a valid verdict gives the response no score.
    """
    valid = [verdict for verdict in verdicts if verdict.valid]
    values = [_score(verdict, index) for verdict in valid]
    told = (verdict.rationale if valid else verdict.error for verdict in valid or verdicts)
    return {
        "value": fmean(values) if values else float("nan"),
        "explanation": next(filter(None, told), None),
        "verdicts": len(verdicts),
        "valid": len(valid),
    }


def _score(verdict: Verdict, index: int) -> float:
    values = verdict.expected_scores or verdict.scores
    if values is None or values[index] is None:
        raise RecordError(
            f"case {verdict.case_id!r}: {verdict.rubric} gives no score of a response; --to csv takes all verdicts"
        )
    return values[index]


def inspect_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the file that inspect_ai's scorer `precomputed_scores` reads; NaN is its word for unscored."""
    lines = []
    for record in records:
        metadata = {"verdicts": record["verdicts"], "valid": record["valid"]}
        metadata |= {} if record["valid"] else {"unscored_reason": FAILED}  # inspect_ai makes it the score's reason
        score = {name: record[name] for name in ("id", "epoch", "value", "explanation")}
        lines.append(json.dumps(score | {"metadata": metadata}, ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def lm_eval_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return JSON lines with keys of lm-evaluation-harness's samples; an answer without a valid verdict has NaN."""
    lines = []
    for record in records:
        sample = {"doc_id": int(record["id"]), "metrics": [NAME], NAME: record["value"]}
        sample |= {"explanation": record["explanation"], "verdicts": record["verdicts"], "valid": record["valid"]}
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    return "".join(lines)
