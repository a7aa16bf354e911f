"""The folder of a panel: rated cases, ratings, planted dangers, one judge's verdicts and fingerprint, each file's digest."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.judges.base import BaseJudge
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People, read_ratings
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, read_verdicts
from automedeval.records import Case, RecordError, Verdict, digest, read_cases, read_records, read_text
from automedeval.rubrics import Rubric, read_rubric
from automedeval.rubrics.prompts import prompt_fingerprint
from automedeval.rubrics.published import FOLDER, RUBRIC

RECORD, CASES, RATINGS = "panel.json", "cases.jsonl", "ratings.jsonl"
VERDICTS, TRIALS = "verdicts.jsonl", "trials.jsonl"
TRIAL_VERDICTS = "trials/verdicts.jsonl"
NAMES = {  # what is known of a judge → how it is called
    "settings": "the settings' fingerprint",
    "checkpoint": "the weights' fingerprint",
    "served": "what the endpoint says of its model",
    "prompts": "the prompts' fingerprint",
    "decoding": "the decoding",
}


@dataclass(frozen=True)
class Panel:
    """What was frozen.

    Args:
        record: panel.json: "frozen", the date; "judge", its `identity`; "arguments", by which it is loaded; "abstain_below",
            the gap of scores below which it abstains, or None; "files", path → SHA-256.
        ordered: the cases in the order in which they are judged.
        changed, after: the cases with a planted danger, or as clean twins, and the verdict on each by its id.
    """

    folder: Path
    record: dict[str, Any]
    ordered: list[Case]
    cases: Cases
    people: People
    judged: JudgeVerdicts
    rubric: Rubric | None
    changed: list[Case]
    after: dict[str, Verdict]

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits over everything that was frozen."""
        return digest(self.record, sort_keys=True)


def identity(judge: BaseJudge) -> dict[str, Any]:
    """Return what is known of a judge: its names, its scale, and the fingerprints in `NAMES`, None where there is none."""
    chat, wording = judge.chat, judge.wording
    return {
        "name": judge.name,
        "rubric": judge.rubric_name,
        "scale": list(wording.scale) if wording and wording.scale else None,
        "settings": judge.fingerprint,
        "checkpoint": getattr(chat, "checkpoint", None),
        "served": getattr(chat, "served", None) or None,
        "prompts": prompt_fingerprint(wording) if chat is not None and wording else None,
        "decoding": getattr(judge, "score_decoding", None),
    }


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file; RecordError if it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror or error}") from None


def read_panel(folder: Path) -> Panel:
    """Read a panel; RecordError if the folder is none, or a file was changed after freezing."""
    file = folder / RECORD
    if not file.is_file():
        raise RecordError(f"{folder}: no {RECORD}: not a panel, or `automedeval panel freeze` stopped halfway")
    try:
        record = json.loads(read_text(file))
        date, files, *_ = (record[key] for key in ("frozen", "files", "judge", "arguments", "abstain_below"))
        if not {CASES, RATINGS, VERDICTS} <= files.keys():
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RecordError(f"{file}: not written by `automedeval panel freeze`") from None
    for name, expected in files.items():
        if sha256(folder / name) != expected:
            raise RecordError(f"{folder / name}: changed after the panel was frozen on {date}: put the old file back")
    ordered = list(read_cases(str(folder / CASES), blank="lowest"))  # a file of ours: it has no blank cells
    cases = Cases(ordered, str(folder / CASES))
    rubric = str(folder / FOLDER / RUBRIC) if f"{FOLDER}/{RUBRIC}" in files else None
    ((judged,), _) = read_verdicts([str(folder)], cases, rubric)
    after = read_records(folder / TRIAL_VERDICTS, Verdict) if TRIAL_VERDICTS in files else ()
    return Panel(
        folder, record, ordered, cases, read_ratings(str(folder / RATINGS), cases), judged,
        read_rubric(rubric) if rubric else None, list(read_records(folder / TRIALS, Case)),
        {verdict.case_id: verdict for verdict in after},
    )  # fmt: skip
