"""How similar judges' rationales are to a teacher's on the same cases (paper section 4.3, Table 2).

A similarity to the teacher, and to nobody else: it says nothing of whether either rationale is right. How two texts are
compared is not known here; `score` is handed over, and is `rationale_score` of the metric of that name.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.cases import Cases, Elsewhere
from automedeval.meta_evaluation.verdicts import JudgeEvidence
from automedeval.records import RecordError, Verdict, read_placed
from automedeval.rubrics.rationale import permute
from automedeval.stats import bootstrap

LABEL = "similarity to the teacher's rationale, not its quality"
Shown = tuple[int, tuple[int, ...], bool]  # case, responses, whether their order matters


@dataclass
class Rationales:
    """One judge's rationales by what it was shown, and why its other verdicts have none.

    `texts` maps a case and the responses shown to the rationales of the valid verdicts on them, each as it reads when the
    responses are shown in the order of the case: Doctor 1 is the same response in all of them.
    """

    name: str
    texts: dict[Shown, list[str]] = field(default_factory=dict)
    left_out: Counter = field(default_factory=Counter)

    def add(self, case: int, verdict: Verdict) -> None:
        """Take up one verdict, or note why it cannot be compared."""
        if not verdict.valid:
            self.left_out["invalid"] += 1
        elif not (verdict.rationale or "").strip():
            self.left_out["without a rationale"] += 1
        elif verdict.pair is not None:  # answers A and B are not renamed in a text: only the same order can be compared
            self.texts.setdefault((case, verdict.order, True), []).append(verdict.rationale)
        else:
            order = tuple(sorted(verdict.order))
            text = permute(verdict.rationale, [verdict.order.index(response) for response in order])
            self.texts.setdefault((case, order, False), []).append(text)


def read_teacher(path: str, cases: Cases) -> tuple[Rationales, list[str]]:
    """Read the teacher's verdicts.

    Args:
        path: a verdict file, or a folder that holds a verdicts.jsonl; all verdicts are of one judge.

    Returns:
        The teacher's rationales, and notes.

    Raises:
        RecordError: verdicts of two judges; a verdict on a case as it was before its texts changed; no rationale on any of
            these cases.
    """
    file = Path(path) / "verdicts.jsonl" if Path(path).is_dir() else Path(path)
    other = Elsewhere(f"{file}: verdicts", cases)
    found: Rationales | None = None
    for place, verdict in read_placed(file, Verdict):
        found = found or Rationales(verdict.judge)
        if verdict.judge != found.name:
            raise RecordError(
                f"{place}: a verdict of {verdict.judge!r}; all verdicts must be of one teacher, {found.name!r}"
            )
        case = other.case(verdict.case_id)
        if case is not None:
            _check(place, cases, case, verdict)
            found.add(case, verdict)
    if found is None or not found.texts:
        raise RecordError(f"{file}: no valid verdict with a rationale on any case in {cases.source}")
    return found, other.notes()


def _check(place: str, cases: Cases, case: int, verdict: Verdict) -> None:
    record = cases.records[case]
    if verdict.extra.get("case_digest", record.digest) != record.digest:
        raise RecordError(f"{place}: the verdict is on case {record.id!r} as it was before its texts changed")
    count = len(record.responses)
    if not all(0 <= index < count for index in verdict.order) or len(set(verdict.order)) != len(verdict.order):
        raise RecordError(f"{place}: 'order' {list(verdict.order)} does not fit the {count} responses of {record.id!r}")


def compare_rationales(
    cases: Cases,
    judges: Sequence[JudgeEvidence],
    teacher: Rationales,
    score: Callable[..., dict[str, Any]],
    **settings: Any,
) -> dict[str, Any]:
    """Compare judges' rationales with the teacher's on the same responses of the same case.

    Args:
        judges: evidence that was read from verdict files; baselines are passed over.
        score: takes predictions, lists of references and `settings`, and returns what `rationale_score` does.

    Returns:
        `teacher`, `label`, `settings`, and under `judges` for each name: `bert_score` {precision, recall, f1} and `bart_score`
        as `Statistic`s over cases, `rationales` (how many were compared), `left_out` {reason: count}, `truncated`; or
        `reason`, why there is nothing. Where the teacher gave several verdicts, the best figure counts.

    Raises:
        RecordError: what `score` refuses.
    """
    table: dict[str, dict[str, Any]] = {}
    items: list[tuple[str, int, str, list[str]]] = []
    for evidence in judges:
        if evidence.kind != "judge" or evidence.file is None:
            continue
        if evidence.judge == teacher.name:
            table[evidence.name] = {"reason": "the teacher itself"}
            continue
        own = _read(evidence, cases)
        before = len(items)
        for shown, texts in own.texts.items():
            if shown in teacher.texts:
                items += [(evidence.name, shown[0], text, teacher.texts[shown]) for text in texts]
            else:
                own.left_out["without a rationale of the teacher's"] += len(texts)
        count = len(items) - before
        table[evidence.name] = {"rationales": count, "left_out": dict(own.left_out)}
        if not count:
            table[evidence.name]["reason"] = "no rationale on what the teacher wrote one about"
    result = {"teacher": teacher.name, "label": LABEL, "settings": settings, "judges": table}
    if not items:
        return result
    names, places, predictions, references = zip(*items)
    try:
        found = score(predictions=list(predictions), references=list(references), **settings)
    except ValueError as error:
        raise RecordError(f"the rationales cannot be compared: {error}") from None
    cut = Counter(names[item] for item in found["truncated"])
    for name in dict.fromkeys(names):
        rows = [row for row, other in enumerate(names) if other == name]
        case = np.array(places)[rows]
        table[name]["truncated"] = cut[name]
        if "bert_score" in found:
            figures = found["bert_score"].items()
            table[name]["bert_score"] = {
                key: _mean([values[row] for row in rows], case, cases) for key, values in figures
            }
        if "bart_score" in found:
            table[name]["bart_score"] = _mean([found["bart_score"][row] for row in rows], case, cases)
    return result


def _read(evidence: JudgeEvidence, cases: Cases) -> Rationales:
    """Read a judge's rationales again from its file, which is known to fit the cases."""
    found = Rationales(evidence.name)
    for _, verdict in read_placed(evidence.file, Verdict):
        if (verdict.judge, verdict.rubric) == (evidence.judge, evidence.rubric) and verdict.case_id in cases.index:
            found.add(cases.index[verdict.case_id], verdict)
    return found


def _mean(values: Sequence[float | None], case: np.ndarray, cases: Cases) -> bootstrap.Statistic:
    """Return the mean over rationales, by cases; one without a figure is left out."""
    known = np.array([value is not None for value in values])
    figures = np.array([0.0 if value is None else value for value in values])
    totals = np.bincount(case, weights=figures, minlength=len(cases))
    counts = np.bincount(case, weights=known, minlength=len(cases))
    return bootstrap.mean(totals, counts, int(known.sum()), "no rationale has a score")
