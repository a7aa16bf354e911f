"""The verdicts that an audit looks at: recorded ones, or those of a judge on clean cases and on changed ones.

Every verdict is appended as it comes, by the same log as `recipes/judge.py` keeps; what is there is not judged again.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from automedeval.audit.trials import Outcome, Templates, outcome, plan_trials
from automedeval.judges.base import WINDOW, BaseJudge
from automedeval.judges.requests import Request, plan_requests
from automedeval.judges.verdict_log import VerdictLog
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People
from automedeval.meta_evaluation.verdicts import Readings, read_verdicts
from automedeval.records import RecordError, Verdict, read_records, verdict_key
from automedeval.records.journal import ALONE, Journal, Processes, write_whole
from automedeval.rubrics import Rubric, packaged_rubrics, read_rubric


def recorded(place: str, cases: Cases, rubric: str, judge_name: str | None, notes: list[str]) -> Readings:
    """Read the recorded verdicts of one judge, checked against the cases and the rubric.

    Args:
        place: a file, or a folder that holds a verdicts.jsonl.
        rubric: the path of the judge's own rubric, if it is no packaged one.
        judge_name: whose, where there are several.
        notes: what the report has to say is added here.

    Raises:
        RecordError: what `evidence.read_verdicts` raises, or the judge cannot be told.
    """
    path = Path(place) / "verdicts.jsonl" if Path(place).is_dir() else Path(place)
    own = read_rubric(rubric) if rubric.endswith((".yaml", ".yml")) else None
    evidence, more = read_verdicts([str(path)], cases, rubric if own else None)
    chosen = [each for each in evidence if judge_name in (None, each.judge)]
    if own is not None and len(chosen) > 1:
        chosen = [each for each in chosen if each.rubric == own.name]
    if len(chosen) != 1:
        names = ", ".join(f"{each.judge} by {each.rubric}" for each in evidence)
        raise RecordError(f"{path}: holds verdicts of {names}; --judge_name chooses one")
    (judge,) = chosen
    # What is said of other judges in the file is no matter here.
    others = [each.name for each in evidence if each is not judge]
    notes += [note for note in more if not note.startswith(tuple(others))] if others else more
    verdicts = [
        verdict
        for verdict in read_records(path, Verdict)
        if (verdict.judge, verdict.rubric) == (judge.judge, judge.rubric) and verdict.case_id in cases.index
    ]
    known = [own] if own else [read_rubric(name) for name in packaged_rubrics()]
    return Readings(cases, verdicts, next((each for each in known if each.name == judge.rubric), None))


def judge_of(readings: Readings) -> dict[str, str | None]:
    """Tell whose verdicts they are: name, rubric, fingerprint of the weights (None where the verdicts do not tell it)."""
    checkpoints = {each.extra.get("checkpoint") for each in readings.verdicts}
    (checkpoint,) = checkpoints if len(checkpoints) == 1 else {None}
    return {"name": readings.verdicts[0].judge, "rubric": readings.verdicts[0].rubric, "checkpoint": checkpoint}


def judge_tampered(
    judge: BaseJudge,
    cases: Cases,
    folder: Path,
    checks: Sequence[str],
    templates: Templates,
    rubric: Rubric,
    seed: int,
    people: People | None,
    notes: list[str],
    ours: Processes = ALONE,
) -> tuple[Readings, list[Outcome]]:
    """Have a judge judge the cases as they are, and then what trials make of them; return readings and outcomes.

    Writes FOLDER/clean/verdicts.jsonl, FOLDER/trials.jsonl (the changed cases; each names its clean one under "audit") and
    FOLDER/trials/verdicts.jsonl.

    Args:
        rubric: the rubric that attackers have in mind; the judge's own where it has one.
        notes: what the report has to say is added here.
        ours: the processes that share the judging; all of them return the same.
    """
    planned = {case.id: judge.plan(case) for case in cases.records}
    verdicts = judge_all(
        judge, [request for requests in planned.values() for request in requests], folder / "clean", ours
    )
    if not verdicts:
        raise RecordError(f"{cases.source}: nothing to judge by {judge.rubric_name}: no case has two responses")
    bases: list[Request] = []
    for case in cases.records:
        # The seeded order, whatever other orders are judged besides: "all" begins with the order of the file.
        seeded = planned[case.id] if judge.apart else plan_requests(case, rubric, "1", seed)
        bases += seeded[:1]
    clean = [(base, verdicts[base.key]) for base in bases]
    if skipped := sum(not verdict.valid for _, verdict in clean):
        notes.append(f"{folder.name}: {skipped} of {len(clean)} cases have no valid clean verdict, and no trial")
    ratings = None
    if people is not None:
        edges = cases.start.tolist()
        ratings = {case.id: people.scores[edges[i] : edges[i + 1]] for i, case in enumerate(cases.records)}
    trials = plan_trials(clean, checks, templates, rubric, seed, ratings, judge.apart)
    lines = (json.dumps(trial.case.to_dict(), ensure_ascii=False) + "\n" for trial in trials)
    if ours.rank == 0:
        write_whole(folder / "trials.jsonl", "".join(lines))
    after = judge_all(judge, [trial.request for trial in trials], folder / "trials", ours)
    readings = Readings(cases, list(verdicts.values()), None if judge.apart else rubric)
    before = {base.case.id: verdict for base, verdict in clean}
    outcomes = []
    for trial in trials:
        case_id = trial.clean.case.id
        verdict, number = after[trial.request.key], cases.index[case_id]
        seen = (readings.has_expected, readings.unit, readings.rubric)
        outcomes.append(outcome(trial, before[case_id], verdict, number, *seen))
    return readings, outcomes


def judge_all(
    judge: BaseJudge, requests: Sequence[Request], folder: Path, ours: Processes = ALONE
) -> dict[tuple, Verdict]:
    """Judge what a folder does not hold yet; return the verdicts of all requests by `Request.key`, in the order of requests.

    Raises:
        RecordError: the folder holds verdicts of another judge of that name, or on cases of other texts; an endpoint failed.
    """
    log = VerdictLog(folder, judge.name, judge.rubric_name, judge.fingerprint, ours.rank, ours.count)
    if ours.rank == 0:
        log.join_parts()
    ours.wait()
    size = max(1, min(WINDOW, -(-len(requests) // ours.count)))
    mine = [requests[start : start + size] for start in range(0, len(requests), size)][ours.rank :: ours.count]
    with Journal(log.part) as journal:
        done = log.done({request.case.id: request.case.digest for request in requests})
        missing = sum(request.key not in done for window in mine for request in window)
        name = f"{folder.parent.name}, {folder.name}"
        with tqdm(total=missing, unit="verdict", desc=name, disable=ours.rank > 0) as bar:
            for window in mine:
                for _, verdict in judge.judge(window, [request.key not in done for request in window]):
                    journal.append(verdict.to_dict())
                    bar.update()
                journal.sync()
    ours.wait()
    if ours.rank == 0:
        log.join_parts()
    ours.wait()
    found = {verdict_key(verdict): verdict for verdict in log.mine()}
    if unanswered := sum(request.key not in found for request in requests):
        failures = getattr(judge.chat, "failures", ())
        last = f", the last: {failures[-1]}" if failures else ""
        raise RecordError(f"{unanswered} not judged{last}; the same command tries them again")
    return {request.key: found[request.key] for request in requests}
