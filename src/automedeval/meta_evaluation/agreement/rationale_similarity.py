"""Compare judges' rationales with a teacher's on the same cases (paper section 4.3, Table 2).

This is the similarity to one teacher; it does not tell whether either rationale is right. The metric is passed in as `score`:
the `rationale_score` of `automedeval.metrics`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.runs import check_names
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import JsonObject, RecordError, foreign_errors_at
from automedeval.rubrics.rationale import DOCTOR, permute
from automedeval.stats import bootstrap

LABEL = "similarity to the teacher's rationale, not its quality"
Shown = tuple[int, tuple[int, ...], bool]  # case, responses, whether their order matters


def rationales_of(judge: VerdictTable) -> tuple[dict[Shown, list[tuple[int, str]]], Counter]:
    """Return a judge's rationales with their runs by the responses that it was shown, and why its other verdicts have none.

    Every rationale is renamed to the order of the case: Doctor 1 is the same response in all of them. Answers A and B of a pair
    are not renamed; there only verdicts in the same order can be compared.
    """
    texts: dict[Shown, list[tuple[int, str]]] = {}
    left_out: Counter = Counter()
    for case, verdict in zip(judge.case_of.tolist(), judge.verdicts):
        if not verdict.valid:
            left_out["invalid"] += 1
        elif verdict.rationale is None or not verdict.rationale.strip():
            left_out["without a rationale"] += 1
        elif verdict.pair is not None:
            texts.setdefault((case, verdict.order, True), []).append(
                (verdict.run, verdict.rationale)
            )
        else:
            order = tuple(sorted(verdict.order))
            slots = [verdict.order.index(response) for response in order]
            text = permute(
                verdict.rationale, slots, judge.rubric.slot_word if judge.rubric else DOCTOR
            )
            texts.setdefault((case, order, False), []).append((verdict.run, text))
    return texts, left_out


def teacher_among(judges: Sequence[VerdictTable], name: str) -> VerdictTable:
    """Return the judge of this name; RecordError if there is none, or none of its verdicts has a rationale."""
    check_names("--teacher_verdicts", [name], [judge.name for judge in judges])
    teacher = next(judge for judge in judges if judge.name == name)
    if not any(each.valid and (each.rationale or "").strip() for each in teacher.verdicts):
        raise RecordError(
            f"--teacher_verdicts: {name} has no valid verdict with a rationale on any of these cases"
        )
    return teacher


def compare_rationales(
    cases: Cases,
    judges: Sequence[VerdictTable],
    teacher: VerdictTable,
    score: Callable[..., dict],
    **settings: Any,
) -> JsonObject:
    """Compare judges' rationales with the teacher's on the same responses of the same case.

    Args:
        score: takes predictions, lists of references and `settings`, and returns what `rationale_score` does; of several
            references the best figure counts.

    Returns:
        `teacher`, `label`, `settings`, the metric's `bert_score_hash` and `revisions`, and under `judges` for each name:
        `bert_score` (F1) and `bart_score` as `Statistic`s, the same under `runs` for each run by itself,
        None where there is one, `rationales` (how many were compared), `left_out` {reason: count}, `truncated`; or `reason`.

    Raises:
        RecordError: `score` refuses the texts or the settings.
    """
    table: dict[str, JsonObject] = {}
    items: list[tuple[str, int, int, str, list[str]]] = []
    references = {
        shown: [text for _, text in texts] for shown, texts in rationales_of(teacher)[0].items()
    }
    for judge in judges:
        if judge.kind != "judge":
            continue
        if judge.judge == teacher.judge:
            table[judge.name] = {"reason": "the teacher itself"}
            continue
        rationales, left_out = rationales_of(judge)
        before = len(items)
        for shown, texts in rationales.items():
            if shown in references:
                items += [
                    (judge.name, run, shown[0], text, references[shown]) for run, text in texts
                ]
            else:
                left_out["without a rationale of the teacher's"] += len(texts)
        count = len(items) - before
        table[judge.name] = {"rationales": count, "left_out": dict(left_out), "runs": None}
        if not count:
            none = "no rationale on responses that the teacher has a rationale on"
            table[judge.name]["reason"] = (
                none if rationales else "this judge gives no rationale, or no valid verdict"
            )
    result = {"teacher": teacher.judge, "label": LABEL, "settings": settings, "judges": table}
    if not items:
        return result
    names, runs, places, predictions, of_teacher = zip(*items)
    with foreign_errors_at("the rationales cannot be compared", ValueError):
        result_of_metric = score(
            predictions=list(predictions), references=list(of_teacher), **settings
        )
    result |= {
        name: result_of_metric[name]
        for name in ("bert_score_hash", "revisions")
        if name in result_of_metric
    }
    cut = Counter(names[item] for item in result_of_metric["truncated"])
    of_judge, of_run, of_case = (np.array(column) for column in (names, runs, places))

    scores = {
        "bert_score": result_of_metric.get("bert_score", {}).get("f1"),
        "bart_score": result_of_metric.get("bart_score"),
    }

    def figures(rows: np.ndarray) -> JsonObject:
        return {
            name: bootstrap.mean_of(
                np.array(values, float)[rows], of_case[rows], len(cases), "no rationale has a score"
            )
            for name, values in scores.items()  # None becomes NaN
            if values is not None
        }

    for judge in judges:
        if judge.name in names:
            rationales = of_judge == judge.name
            table[judge.name] |= {"truncated": cut[judge.name]} | figures(
                np.flatnonzero(rationales)
            )
            if len(judge.runs) > 1:
                at = {run: np.flatnonzero(rationales & (of_run == run)) for run in judge.runs}
                table[judge.name]["runs"] = [
                    {"run": run} | figures(rows) for run, rows in at.items()
                ]
    return result
