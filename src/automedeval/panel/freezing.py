"""Freeze a panel: the rated cases, their ratings, and the verdicts of one judge on them, on planted dangers and clean twins."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.audit.perturbations import TWIN, TWINS, Trial, read_harms
from automedeval.audit.run import judge_trials
from automedeval.audit.trials import Templates, plan_trials
from automedeval.cli import git_commit
from automedeval.judges.base import BaseJudge
from automedeval.judges.recorded import judge_arguments, load_recorded
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People, read_ratings
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, read_verdicts
from automedeval.models.arguments import parse_model
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.panel.folder import CASES, RATINGS, RECORD, TRIAL_VERDICTS, TRIALS, VERDICTS, identity, sha256
from automedeval.records import Case, Rating, RecordError, Verdict, read_cases, read_records, read_text, verdicts_file
from automedeval.records.journal import arithmetic, json_lines, now, write_json, write_whole
from automedeval.records.language import english_only
from automedeval.rubrics import read_rubric, without_scale
from automedeval.rubrics.published import FOLDER, PACKAGED, RUBRIC
from automedeval.rubrics.rubric import rubric_files


def freeze(
    files: tuple[str, str, str],
    output: Path,
    rubric: str | None,
    dangers: int,
    abstention: str | None,
    blank: str | None,
) -> list[str]:
    """Write a panel; a folder in which it stopped halfway goes on. Return lines on what was frozen.

    Args:
        files: the cases, people's ratings of them, and one judge's verdicts.
        rubric, dangers, abstention, blank: the command's options.

    Raises:
        RecordError: an input is wrong, the verdicts are not those of the judge that the record beside them names, or the
            folder holds another panel or other files.
    """
    if (output / RECORD).exists():
        raise RecordError(f"{output}: is a frozen panel already: choose another --output")
    source, ratings_file, place = files
    every, ratings = list(read_cases(source, blank=blank)), list(read_records(ratings_file, Rating))
    rated = {rating.case_id for rating in ratings}
    verdicts_of = {verdict.case_id for verdict in read_records(verdicts_file(place), Verdict)}
    ordered = [case for case in every if case.id in rated & verdicts_of]
    left = ("no verdict" if case.id in rated else "no rating" for case in every if case.id not in rated & verdicts_of)
    lines = [arithmetic("cases", len(every), Counter(left))]
    if not ordered:
        raise RecordError(f"{source}: no case has both a rating in {ratings_file} and a verdict in {place}")
    cases = Cases(ordered, source)
    people, judged = read_ratings(ratings_file, cases), _verdicts(place, cases, rubric)
    judge, arguments = _judge(judged, ordered, rubric)
    trials = _trials(judge, judged, cases, people, dangers)
    records: dict[str, Iterable[Case | Rating | Verdict]] = {
        CASES: ordered,
        RATINGS: (rating for rating in ratings if rating.case_id in cases.index),
        VERDICTS: judged.verdicts,
        TRIALS: (trial.case for trial in trials),
    }
    contents = _rubric_of(judge, arguments)
    for name, lot in records.items():
        contents[name] = json_lines(each.to_dict() for each in lot).encode("utf-8", "backslashreplace")
    record: dict[str, Any] = {
        "frozen": now()[:10],
        "version": version("automedeval"),
        "commit": git_commit(),
        "judge": identity(judge),
        "arguments": arguments,
        "abstain_below": _threshold(abstention, judged) if abstention else None,
    }
    for name, content in contents.items():  # before the first one is written
        if (output / name).exists() and (output / name).read_bytes() != content:
            raise RecordError(f"{output / name}: is there with another content: choose another --output")
    for name, content in contents.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(output / name, content)
    names = [*contents]
    if trials:
        judge_trials(judge, trials, output)
        names.append(TRIAL_VERDICTS)
    write_json(output / RECORD, record | {"files": {name: sha256(output / name) for name in names}})
    twins = sum(trial.kind == TWIN for trial in trials)
    lines += english_only(ordered, "planted dangers")
    lines.append(f"{len(trials) - twins} planted dangers and {twins} clean twins in {len(ordered)} cases")
    served = record["judge"]["served"]
    if judge.chat is not None and served is None and parse_model(arguments["judge"])[0] == "openai":
        lines.append("the endpoint says nothing of its model but the name: only the scores can show that it changed")
    return lines


def _verdicts(place: str, cases: Cases, rubric: str | None) -> JudgeVerdicts:
    """Read the verdicts of one judge that gives scores."""
    judges, notes = read_verdicts([place], cases, rubric, raw=True)
    if len(judges) != 1:
        raise RecordError(f"{place}: verdicts of {', '.join(each.name for each in judges)}: a panel is of one judge")
    if judges[0].of_pairs:
        raise RecordError(f"{place}: {judges[0].rubric_name} gives choices, and a panel needs scores")
    if judges[0].rubric is None and not without_scale(judges[0].rubric_name):
        raise RecordError(f"{place}: {notes[-1]}")
    return judges[0]


def _judge(judged: JudgeVerdicts, ordered: Sequence[Case], rubric: str | None) -> tuple[BaseJudge, dict[str, Any]]:
    """Load the judge that the record of the run names; return it, and how it is loaded again."""
    if "arguments" not in judged.run_record:
        raise RecordError(
            f"{judged.file}: run-{judged.settings}.json, the record of its run, is not beside it: the judge is not known"
        )
    arguments = judge_arguments(judged.run_record["arguments"]) | {"cache": "off", "judge_name": judged.judge}
    arguments |= {"rubric": rubric} if rubric else {}
    judge = load_recorded(arguments, cases=ordered)
    if (settings := {str(verdict.settings) for verdict in judged.verdicts}) != {judge.fingerprint}:
        raise RecordError(
            f"{judged.file}: these verdicts have the settings {', '.join(sorted(settings))}, and {judge.name} has "
            f"{judge.fingerprint} today: judge the cases again"
        )
    planned = {request.key for case in ordered for request in judge.plan(case)}
    if odd := len(planned ^ {verdict.key for verdict in judged.verdicts}):
        raise RecordError(f"{judged.file}: {odd} verdicts are missing, or not what {judge.name} is asked: judge again")
    return judge, arguments


def _trials(judge: BaseJudge, judged: JudgeVerdicts, cases: Cases, people: People, dangers: int) -> list[Trial]:
    """Plan dangers in good responses, and their twins, in the order of the cases."""
    before = {verdict.key: verdict for verdict in judged.verdicts}
    first = (judge.plan(cases.records[number])[0] for number in cases.file_order)
    clean = [(request, before[request.key]) for request in first]
    scores = dict(zip((case.id for case in cases.records), np.split(people.scores, cases.start[1:-1])))
    templates = Templates(harms=read_harms(), twins=read_harms(packaged=TWINS), harms_each=dangers)
    rubric = judged.rubric or read_rubric(PACKAGED)
    return plan_trials(clean, ["harm"], templates, rubric, ratings=scores, apart=judge.apart)


def _rubric_of(judge: BaseJudge, arguments: dict[str, Any]) -> dict[str, bytes]:
    """Return the rubric's files by path: a packaged one may change in a later version of the package."""
    if judge.wording is None:
        return {}
    named, (kind, model) = arguments.get("rubric"), parse_model(arguments["judge"])
    if named is None and kind == "checkpoint" and (published := checkpoint_folder(model) / FOLDER / RUBRIC).is_file():
        named = str(published)
    text, template = rubric_files(named or judge.wording.id)
    return {f"{FOLDER}/{RUBRIC}": text, f"{FOLDER}/{judge.wording.template}": template}


def _threshold(file: str, judged: JudgeVerdicts) -> float | None:
    try:
        record = json.loads(read_text(Path(file)))
        settings, confidence, threshold = record["settings"], record["confidence"], record["threshold"]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: no abstention.json of automedeval abstain ({error})") from None
    if (settings, confidence) != (judged.settings, "gap"):
        raise RecordError(f"{file}: a threshold for the settings {settings}, and the verdicts have {judged.settings}")
    return threshold
