"""Compare judges' rationales with a teacher's on the same cases (paper section 4.3, Table 2).

This is the similarity to one teacher; it does not tell whether either rationale is right. The metric is passed in as `score`:
the `rationale_score` of `automedeval.metrics`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from automedeval.meta_evaluation.cases import Cases, UnknownCases
from automedeval.meta_evaluation.verdicts import JudgeVerdicts, check_order
from automedeval.records import RecordError, Verdict, read_placed, verdicts_file
from automedeval.rubrics.rationale import permute
from automedeval.stats import bootstrap

LABEL = "similarity to the teacher's rationale, not its quality"
Shown = tuple[int, tuple[int, ...], bool]  # case, responses, whether their order matters


def rationales_of(judge: JudgeVerdicts) -> tuple[dict[Shown, list[str]], Counter]:
    """Return a judge's rationales by the responses that it was shown, and why its other verdicts have none.

    Every rationale is renamed to the order of the case: Doctor 1 is the same response in all of them. Answers A and B of a pair
    are not renamed; there only verdicts in the same order can be compared.
    """
    texts: dict[Shown, list[str]] = {}
    left_out: Counter = Counter()
    for case, verdict in zip(judge.case_of.tolist(), judge.verdicts):
        if not verdict.valid:
            left_out["invalid"] += 1
        elif not (verdict.rationale or "").strip():
            left_out["without a rationale"] += 1
        elif verdict.pair is not None:
            texts.setdefault((case, verdict.order, True), []).append(verdict.rationale)
        else:
            order = tuple(sorted(verdict.order))
            text = permute(verdict.rationale, [verdict.order.index(response) for response in order])
            texts.setdefault((case, order, False), []).append(text)
    return texts, left_out


def read_teacher(path: str, cases: Cases) -> tuple[JudgeVerdicts, list[str]]:
    """Return the verdicts of one teacher in a file, or in a folder that holds a verdicts.jsonl; and notes.

    Raises:
        RecordError: verdicts of two judges; a verdict on a case whose texts changed since; no rationale on any of these cases.
    """
    file = verdicts_file(path)
    other = UnknownCases(f"{file}: verdicts", cases)
    found: list[Verdict] = []
    name = None
    for place, verdict in read_placed(file, Verdict):
        name = name or verdict.judge
        if verdict.judge != name:
            raise RecordError(f"{place}: a verdict of {verdict.judge!r}; all verdicts must be of one teacher, {name!r}")
        if other.knows(verdict):
            check_order(place, cases.records[cases.index[verdict.case_id]], verdict)
            found.append(verdict)
    if not any(verdict.valid and (verdict.rationale or "").strip() for verdict in found):
        raise RecordError(f"{file}: no valid verdict with a rationale on any case in {cases.source}")
    return JudgeVerdicts(cases, found), other.notes()


def compare_rationales(
    cases: Cases,
    judges: Sequence[JudgeVerdicts],
    teacher: JudgeVerdicts,
    score: Callable[..., dict[str, Any]],
    **settings: Any,
) -> dict[str, Any]:
    """Compare judges' rationales with the teacher's on the same responses of the same case.

    Args:
        judges: judges of verdict files; baselines are passed over.
        score: takes predictions, lists of references and `settings`, and returns what `rationale_score` does; of several
            references the best figure counts.

    Returns:
        `teacher`, `label`, `settings`, the metric's `bert_score_hash` and `revisions`, and under `judges` for each name:
        `bert_score` {precision, recall, f1} and `bart_score` as `Statistic`s, `rationales` (how many were compared), `left_out`
        {reason: count}, `truncated`; or `reason`.

    Raises:
        RecordError: `score` refuses the texts or the settings.
    """
    table: dict[str, dict[str, Any]] = {}
    items: list[tuple[str, int, str, list[str]]] = []
    references, _ = rationales_of(teacher)
    for judge in judges:
        if judge.kind != "judge":
            continue
        if judge.judge == teacher.judge:
            table[judge.name] = {"reason": "the teacher itself"}
            continue
        own, left_out = rationales_of(judge)
        before = len(items)
        for shown, texts in own.items():
            if shown in references:
                items += [(judge.name, shown[0], text, references[shown]) for text in texts]
            else:
                left_out["without a rationale of the teacher's"] += len(texts)
        count = len(items) - before
        table[judge.name] = {"rationales": count, "left_out": dict(left_out)}
        if not count:
            table[judge.name]["reason"] = "no rationale on responses that the teacher has a rationale on"
    result = {"teacher": teacher.judge, "label": LABEL, "settings": settings, "judges": table}
    if not items:
        return result
    names, places, predictions, of_teacher = zip(*items)
    try:
        found = score(predictions=list(predictions), references=list(of_teacher), **settings)
    except ValueError as error:
        raise RecordError(f"the rationales cannot be compared: {error}") from None
    result |= {name: found[name] for name in ("bert_score_hash", "revisions") if name in found}
    cut = Counter(names[item] for item in found["truncated"])
    for name in dict.fromkeys(names):
        rows = np.flatnonzero(np.array(names) == name)
        case = np.array(places)[rows]

        def mean(
            values: Sequence[float | None], rows: np.ndarray = rows, case: np.ndarray = case
        ) -> bootstrap.Statistic:
            figures = np.array(values, float)[rows]  # None becomes NaN
            sums = (np.bincount(case, each, len(cases)) for each in (np.nan_to_num(figures), ~np.isnan(figures)))
            return bootstrap.mean(*sums, int((~np.isnan(figures)).sum()), "no rationale has a score")

        table[name]["truncated"] = cut[name]
        if "bert_score" in found:
            table[name]["bert_score"] = {key: mean(values) for key, values in found["bert_score"].items()}
        if "bart_score" in found:
            table[name]["bart_score"] = mean(found["bart_score"])
    return result
