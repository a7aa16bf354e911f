"""Compare judges' rationales with a teacher's on the same cases (paper section 4.3, Table 2).

This is the similarity to one teacher; it does not tell whether either rationale is right. The metric is passed in as `score`:
the `rationale_score` of `automedeval.metrics`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from automedeval.meta_evaluation.agreement.runs import check_names
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import Judges, VerdictTable
from automedeval.records import JsonObject, RecordError, foreign_errors_at
from automedeval.rubrics.rationale import DOCTOR
from automedeval.rubrics.slots import renamed
from automedeval.stats.bootstrap import mean_of, only

LABEL = "similarity to the teacher's rationale, not its quality"
Shown = tuple[int, tuple[int, ...], bool]  # case, responses, whether their order matters
Texts = dict[Shown, list[tuple[int, str]]]  # rationales with their runs


def rationales_of(judge: VerdictTable) -> tuple[Texts, Counter]:
    """Return a judge's rationales with their runs by the responses that it was shown, and why its other verdicts have none.

    Every rationale is renamed to the order of the case: Doctor 1 is the same response in all of them. Answers A and B of a pair
    are not renamed; there only verdicts in the same order can be compared.
    """
    texts: Texts = defaultdict(list)
    left_out: Counter = Counter()
    slot_word = judge.rubric.slot_word if judge.rubric else DOCTOR
    for case, verdict in zip(judge.case_of.tolist(), judge.verdicts):
        rationale = verdict.rationale or ""
        if not verdict.valid:
            left_out["invalid"] += 1
        elif not rationale.strip():
            left_out["without a rationale"] += 1
        elif verdict.pair is not None:
            texts[case, verdict.order, True].append((verdict.run, rationale))
        else:
            order = tuple(sorted(verdict.order))
            text = renamed(rationale, verdict.order, order, slot_word)
            texts[case, order, False].append((verdict.run, text))
    return texts, left_out


def teacher_among(judges: Judges, name: str) -> VerdictTable:
    """Return the judge of this name; RecordError if there is none, or none of its verdicts has a rationale."""
    check_names("--teacher_verdicts", [name], [judge.name for judge in judges])
    teacher = next(judge for judge in judges if judge.name == name)
    if not any((verdict.rationale or "").strip() for verdict in teacher.valid):
        raise RecordError(
            f"--teacher_verdicts: {name} has no valid verdict with a rationale on any of these "
            "cases"
        )
    return teacher


class Compared(NamedTuple):
    """A rationale of a judge beside the teacher's on the same responses."""

    run: int
    case: int
    text: str
    of_teacher: list[str]


def compare_rationales(
    cases: Cases,
    judges: Judges,
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
    by_teacher, _ = rationales_of(teacher)
    references = {shown: [text for _, text in texts] for shown, texts in by_teacher.items()}
    table: JsonObject = {}
    result = {"teacher": teacher.judge, "label": LABEL, "settings": settings, "judges": table}
    for judge in judges:
        if judge.kind != "judge":
            continue
        compared, record = _beside_teacher(judge, teacher, references)
        table[judge.name] = record
        if not compared:
            continue
        predictions = [rationale.text for rationale in compared]
        of_teacher = [rationale.of_teacher for rationale in compared]
        with foreign_errors_at("the rationales cannot be compared", ValueError):
            metric = score(predictions=predictions, references=of_teacher, **settings)
        for name in ("bert_score_hash", "revisions"):
            if name in metric:
                result[name] = metric[name]
        record |= {"truncated": len(metric["truncated"])} | _figures(metric, compared, len(cases))
        if len(judge.runs) > 1:
            record["runs"] = [
                {"run": run} | _figures(metric, compared, len(cases), run) for run in judge.runs
            ]
    return result


def _figures(
    metric: JsonObject, compared: Sequence[Compared], cases: int, run: int | None = None
) -> JsonObject:
    """Return the means of what the metric says of these rationales, or of those of one run."""
    scores = {}
    if "bert_score" in metric:
        scores["bert_score"] = metric["bert_score"]["f1"]
    if "bart_score" in metric:
        scores["bart_score"] = metric["bart_score"]
    case = np.array([rationale.case for rationale in compared])
    use = np.array([run in (None, rationale.run) for rationale in compared])
    figures = {}
    for name, of_rationales in scores.items():
        values = only(np.array(of_rationales, float), use)  # None becomes NaN
        figures[name] = mean_of(values, case, cases, "no rationale has a score")
    return figures


def _beside_teacher(
    judge: VerdictTable, teacher: VerdictTable, references: Mapping[Shown, list[str]]
) -> tuple[list[Compared], JsonObject]:
    """Return a judge's rationales on what the teacher has some on, and how many they are, and are left out, or why not."""
    if judge.judge == teacher.judge:
        return [], {"reason": "the teacher itself"}
    rationales, left_out = rationales_of(judge)
    compared = []
    for shown, texts in rationales.items():
        if shown not in references:
            left_out["without a rationale of the teacher's"] += len(texts)
            continue
        for run, text in texts:
            compared.append(Compared(run, shown[0], text, references[shown]))
    record = {"rationales": len(compared), "left_out": dict(left_out), "runs": None}
    if not compared:
        record["reason"] = "no rationale on responses that the teacher has a rationale on"
    return compared, record
