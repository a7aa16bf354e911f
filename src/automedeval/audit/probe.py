"""Probe a judge that has no audit: plant a few dangers, beside their twins, in seconds, for the first screen of a report.

Only a judge without a chat is probed, as the small one is: it costs nothing, and is loaded again in seconds.
"""

import itertools
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from automedeval.audit.evidence import measure_evidence
from automedeval.audit.perturbations import CONTROL, TWIN, TWINS, Trial, read_harms
from automedeval.audit.run import judge_trials
from automedeval.audit.trials import Templates, grouped, outcome, plan_trials
from automedeval.judges.base import BaseJudge
from automedeval.judges.recorded import load_recorded
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts
from automedeval.models.arguments import EncoderArguments, parse_model
from automedeval.records import RecordError
from automedeval.rubrics import read_rubric
from automedeval.rubrics.published import PACKAGED
from automedeval.stats.bootstrap import estimate, plain

# Together about ten seconds of the small judge on two cores:
EDITS = 20  # most dangers
TEXT = 25_000  # most characters of the changed answers and their references
CASES = 200  # most cases that are searched


def probe_judge(encoder: EncoderArguments, judged: JudgeVerdicts, notes: list[str]) -> dict[str, Any] | None:
    """Plant a few dangers in the cases of recorded verdicts, as many of each kind as there are, and judge them.

    Args:
        encoder: that of the report; "none" leaves the probe out.
        judged: the verdicts, with the record of their run beside them.
        notes: the report's notes; why there is no probe is added, if the judge is of a kind that is probed.

    Returns:
        what `measure_evidence` returns, estimated, and "edits", the number of changed answers; None without a probe.
    """
    arguments = judged.run_record.get("arguments", {})
    if parse_model(str(arguments.get("judge")))[0] not in ("small", "baseline") or encoder.encoder == "none":
        return None
    try:
        judge = load_recorded(arguments, judged.rubric, judged.cases.records)
    except RecordError as error:
        notes.append(f"no probe of {judged.name}: {error}")
        return None
    if judge.fingerprint != judged.settings:
        notes.append(f"no probe of {judged.name}: loaded again it has other settings than in these verdicts")
        return None
    trials = _drawn(judge, judged)
    if not trials:
        notes.append(f"no probe of {judged.name}: no short answer states a fact that can be made dangerous")
        return None
    before = {verdict.key: verdict for verdict in judged.verdicts}
    with TemporaryDirectory() as place:
        folder = Path(place) / "probe"  # the name of the progress bar
        folder.mkdir()
        after = judge_trials(judge, trials, folder)
        outcomes = [outcome(trial, before[trial.clean.key], after[trial.request.key], judged) for trial in trials]
        figures = measure_evidence(judge, outcomes, judged, folder)
    return plain(estimate(figures, len(judged.cases))) | {"edits": len(trials)}


def _drawn(judge: BaseJudge, judged: JudgeVerdicts) -> list[Trial]:
    """Draw dangers, the kinds in turn, and their twins; where some cases have a reference, of these alone."""
    cases = judged.cases.records
    aided = [case for case in cases if case.reference is not None and judge.reads_reference] or cases
    some = random.Random(0).sample(aided, min(CASES, len(aided)))
    before = {verdict.key: verdict for verdict in judged.verdicts}
    clean = [(request, before[request.key]) for case in some for request in judge.plan(case) if request.key in before]
    templates = Templates(harms=read_harms(), twins=read_harms(packaged=TWINS))
    trials = plan_trials(clean, ["harm"], templates, judged.rubric or read_rubric(PACKAGED), apart=judge.apart)
    by_kind = grouped((trial.kind, trial) for trial in trials if trial.kind not in (CONTROL, TWIN))
    in_turn = (trial for those in itertools.zip_longest(*by_kind.values()) for trial in those if trial is not None)
    drawn: list[Trial] = []
    left = TEXT
    for trial in in_turn:
        length = len(trial.case.responses[trial.target].text) + len(trial.case.reference or "")
        if len(drawn) < EDITS and length <= left:
            drawn.append(trial)
            left -= length
    places = {(trial.clean.case.id, trial.target, trial.kind) for trial in drawn}
    return drawn + [each for each in trials if (each.clean.case.id, each.target, each.mirrors) in places]
