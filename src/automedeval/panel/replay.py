"""Replay a panel with today's judge, in a folder of its own; a replay that was interrupted goes on."""

import json
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from automedeval.audit.perturbations import read_trial
from automedeval.audit.run import judge_all, judge_trials
from automedeval.judges.base import BaseJudge
from automedeval.judges.recorded import load_recorded
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts
from automedeval.panel.comparison import Reading, compare
from automedeval.panel.folder import NAMES, Panel, identity
from automedeval.records import RecordError, read_text
from automedeval.records.journal import now, write_json

RUN, CHECK = "run.json", "check.json"


def load_today(panel: Panel, changes: Mapping[str, Any]) -> BaseJudge:
    """Load the judge of a panel as it is today; `changes` take the place of the frozen arguments.

    RecordError for a fault of `load_judge`, another scale, or a served model that lost its identity.
    """
    arguments = panel.record["arguments"] | ({"judge_name": None} if "judge" in changes else {}) | changes
    judge = load_recorded(arguments, panel.rubric, panel.ordered)
    then, today = panel.record["judge"], identity(judge)
    scales = [f"{each['rubric']} ({'–'.join(map(str, each['scale'] or ['no scale']))})" for each in (then, today)]
    if scales[0] != scales[1]:
        raise RecordError(f"{judge.name} scores by {scales[1]}, and {panel.folder} was frozen with {scales[0]}")
    if then["served"] and not today["served"] and today["name"] == then["name"]:
        raise RecordError(
            f"{judge.name}: the endpoint no longer says which model it serves ({_told(then['served'])} when {panel.folder} was "
            "frozen): nobody could say whose verdicts these are"
        )
    return judge


def run_folder(panel: Panel, judge: BaseJudge, checks: Path, record: Mapping[str, Any]) -> tuple[Path, str | None]:
    """Return the folder of a check, and a line if another check stopped halfway.

    A check of the same panel and judge that stopped halfway goes on; of a judge behind an endpoint only on the day on which it
    began, since the model may be another one overnight. Else the folder is new, and is called by the date; its run.json holds
    `record`.
    """
    about, date, line = {"panel": panel.digest, "judge": identity(judge)}, now()[:10], None
    begun = date if hasattr(judge.chat, "served") else ""
    for file in sorted(checks.glob(f"*/{RUN}"), reverse=True):
        folder, before = file.parent, _read(file)
        if (folder / CHECK).exists() or "panel" not in before:  # other commands write a run.json, too
            continue
        if about.items() <= before.items() and folder.name.startswith(begun):
            return folder, f"{folder} stopped halfway, and goes on"
        line = line or f"{folder} stopped halfway, not with today's panel and judge, or not today: it stays as it is"
    names = chain([date], (f"{date}-{number:02}" for number in count(2)))
    folder = next(checks / name for name in names if not (checks / name).exists())
    folder.mkdir(parents=True)
    write_json(folder / RUN, about | dict(record))
    return folder, line


def replay(panel: Panel, judge: BaseJudge, folder: Path, by: float, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Judge what the folder does not hold yet, compare, and write FOLDER/check.json; return its content.

    The folder is that of `run_folder`, `by` as for `compare`, errors those of `judge_all`; `settings` say how it is made.
    """
    planned = {case.id: judge.plan(case) for case in panel.ordered}
    verdicts = judge_all(judge, list(chain.from_iterable(planned.values())), folder)
    trials = [read_trial(case, planned[case.extra["audit"]["of"]], judge.apart) for case in panel.changed]
    after = judge_trials(judge, trials, folder) if trials else {}
    judged = JudgeVerdicts(panel.cases, list(verdicts.values()), panel.judged.rubric)
    frozen = Reading(panel.judged, panel.changed, panel.after)
    replayed = Reading(judged, panel.changed, {verdict.case_id: verdict for verdict in after.values()})
    result = compare(panel.people, frozen, replayed, by, panel.record["abstain_below"])
    then, today = panel.record["judge"], identity(judge)
    record = {
        "date": folder.name, "frozen": panel.record["frozen"], "panel": panel.digest, "judge": today,
        "identity_changed": [
            f"{name}: {_told(then[key])} → {_told(today[key])}" for key, name in NAMES.items() if then[key] != today[key]
        ],
        **result, "settings": settings,
    }  # fmt: skip
    write_json(folder / CHECK, record)
    return record


def history(checks: Path, panel: Panel) -> list[dict[str, Any]]:
    """Return the finished checks of a panel in a folder, the oldest first."""
    records = map(_read, sorted(checks.glob(f"*/{CHECK}")))
    return [each for each in records if each.get("panel") == panel.digest]


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(read_text(file)))
    except (ValueError, TypeError):
        raise RecordError(f"{file}: not a JSON object") from None


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return "nothing" if value is None else str(value)
