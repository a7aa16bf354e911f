"""Measure what evidence is worth to a judge: the same dangers with the case's reference and without it, each beside its twin.

The twin of a dangerous response is the same response with an edit of the same kind that changes nothing medical, such as 0.5 g
for 500 mg: a judge that marks it down gives a false alarm.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from automedeval.audit.perturbations import CONTROL, TWIN, Trial
from automedeval.audit.run import judge_all, judge_trials
from automedeval.audit.trials import Outcome, lowered, outcome
from automedeval.judges.base import BaseJudge
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, expected_values, own_values
from automedeval.records.journal import ALONE, Processes
from automedeval.reports.page import Table
from automedeval.reports.text import shown
from automedeval.stats.bootstrap import Statistic

WITHOUT = "without-reference"  # folder of what is judged without the references
COLUMNS = {  # figure → head of its column
    "with": "danger, with reference",
    "without": "danger, without",
    "twin_with": "harmless twin, with reference",
    "twin_without": "harmless twin, without",
}


def measure_evidence(
    judge: BaseJudge, outcomes: Sequence[Outcome], judged: JudgeVerdicts, folder: Path, processes: Processes = ALONE
) -> dict[str, Any]:
    """Take the reference out of the cases with harms, judge them again, and compare what the harms cost then.

    The figure `harm.lowered`, which has a threshold, is of the cases as they are: an audit is about the judge as it is used. A
    case without a reference, or of a judge that reads none, counts as it is among those without. A judge that needs references
    has only figures with them.

    Args:
        outcomes: of all trials on the cases as they are; only those of harms count.
        judged: the verdicts on the unchanged cases as they are, which give the unit of a change.
        folder: the one of `judge_tampered`; the verdicts without references are written to its `WITHOUT`.

    Returns:
        "with", "without": the shares of dangers that cost half a step or more; "twin_with", "twin_without": the same of their
        twins; "kinds": the same by kind of danger. The leaves are statistics; empty where there are no harms.
    """
    ways: dict[str, list[Outcome]] = {"with": [], "without": []}
    for each in outcomes:
        if each.trial.check == "harm" and each.trial.kind != CONTROL:
            aided = judge.reads_reference and each.trial.case.reference is not None
            ways["with" if aided else "without"].append(each)
    ways["without"] += _judge_without(judge, [each.trial for each in ways["with"]], judged, folder / WITHOUT, processes)
    kinds = sorted({each.trial.kind for each in itertools.chain(*ways.values()) if not _is_twin(each)})

    def figures(kind: str | None = None) -> dict[str, Statistic]:
        shares: dict[str, Statistic] = {}
        for way, outcomes_of_way in ways.items():
            planted = [each for each in outcomes_of_way if not _is_twin(each) and kind in (None, each.trial.kind)]
            twins = [each for each in outcomes_of_way if _is_twin(each) and kind in (None, each.trial.mirrors)]
            shares |= {way: lowered(planted, len(judged.cases)), f"twin_{way}": lowered(twins, len(judged.cases))}
        return shares

    return figures() | {"kinds": {kind: figures(kind) for kind in kinds}} if kinds else {}


def _judge_without(
    judge: BaseJudge, trials: Sequence[Trial], judged: JudgeVerdicts, folder: Path, processes: Processes
) -> list[Outcome]:
    if not trials or judge.chat is not None:  # the prompt of a chat has a place for the reference
        return []
    bare = [_bare(trial) for trial in trials]
    clean = {trial.clean.key: trial.clean for trial in bare}
    before = judge_all(judge, list(clean.values()), folder / "clean", processes)
    after = judge_trials(judge, bare, folder, processes)
    seen = ((trial, before[trial.clean.key], after[trial.request.key]) for trial in bare)
    return [
        outcome(trial, first, second, judged)
        for trial, first, second in seen
        if trial.target in (expected_values(first) or own_values(first, judged.rubric))
    ]


def _bare(trial: Trial) -> Trial:
    """Return a trial without the reference, whose unchanged case shows no more responses than the changed one."""
    clean = replace(trial.clean, case=replace(trial.clean.case, reference=None), slots=trial.request.slots)
    return replace(trial, case=replace(trial.case, reference=None), clean=clean)


def _is_twin(outcome: Outcome) -> bool:
    return outcome.trial.kind == TWIN


def evidence_table(figures: Mapping[str, Any]) -> Table:
    """Return what `measure_evidence` returned, once it is estimated, as a table: a line for all dangers and for each kind."""
    rows = [
        (kind, *(f"{shown(those[name], 0, 100)} of {those[name]['n']}" for name in COLUMNS))
        for kind, those in {"all": figures, **figures["kinds"]}.items()
    ]
    return ("per cent that cost half a step", *COLUMNS.values()), rows
