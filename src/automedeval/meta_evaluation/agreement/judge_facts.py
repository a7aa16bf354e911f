"""What is known of a judge by its verdicts, its audit and the ratings of its cases, for the facts beside a ranking."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, Row
from automedeval.metrics.lexical import longer_text
from automedeval.records import RecordError, read_json
from automedeval.reports.facts import LEAST_RATED, Audit, JudgeProfile
from automedeval.rubrics import without_scale


def audits_of(places: Sequence[str], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Read audits, and return the name of a line → the fields of its judge's `Audit`.

    Args:
        places: files audit.json, or folders that hold one.

    Raises:
        RecordError: a file is no audit, or of none of these judges.
    """
    by_line: dict[str, dict[str, Any]] = {}
    for place in places:
        file = Path(place) / "audit.json" if Path(place).is_dir() else Path(place)
        try:
            content = read_json(file)
            if "decodings" in content:
                raise RecordError(f"{file}: an earlier version wrote it: run automedeval audit again")
            audit, settings = Audit.read(content), content["judge"]["settings"]
        except RecordError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{file}: no audit.json of automedeval audit ({error})") from None
        audited_rows = [row for row in rows if row.judge.settings is not None and row.judge.settings == settings]
        if not audited_rows:
            audited = f"{content['judge']['name']}, with the settings {settings}"
            raise RecordError(f"{file}: an audit of {audited}; no judge of these verdicts has them")
        by_line |= {row.name: asdict(audit) for row in audited_rows}
    return by_line


def audited(places: Sequence[str], rows: Sequence[Row], row: Row) -> dict[str, Audit]:
    """Return the argument `audit` of `JudgeProfile` if one of these audits, each of a judge of the lines, is of this line's."""
    audits = audits_of(places, rows)
    return {"audit": Audit(**audits[row.name])} if row.name in audits else {}


def next_steps(judge: JudgeVerdicts, rated: bool, audited: bool) -> list[str]:
    """Return what to do next, so that more is known of the judge: rate cases, audit it."""
    steps = [] if rated else [f"Rate {min(LEAST_RATED, len(judge.cases))} cases."]
    if not audited:
        run = judge.run_record.get("arguments", {})
        follows_none = bool(run) or without_scale(judge.rubric_name)
        rubric = run.get("rubric") or (None if follows_none else judge.rubric_name.partition("@")[0])
        words = ["automedeval", "audit", "--judge", run.get("judge") or "JUDGE", "--cases", judge.cases.source]
        words += ["--rubric", rubric] if rubric else []
        command = shlex.join([*words, "--output", "audits/mine"])
        steps.append(
            f"Audit the judge with the options of its run, then give --audits audits/mine to the report: {command}"
        )
    return steps


def known_of_judge(cases: Cases, row: Row, first: str | None = None, **more: Any) -> JudgeProfile:
    """Return what is known of a judge, or of a judge of pairs on one criterion, by its verdicts.

    Args:
        first: the model that is first, or that is compared; None: none.
        more: further arguments of `JudgeProfile`, or others than those that are found here.
    """
    judge, relation = row.judge, row.relations
    longer = cases.panel.relations(longer_text(cases.records))
    valid, due = judge.verdicts_valid.sum(), judge.verdicts_due.sum()
    ordered = ~np.isnan(relation) & (longer != 0)
    facts = {
        "blind_to": judge.blind_to,
        "first": first,
        "longer": None if first is None else longer_comparisons(cases, relation, longer, cases.models.index(first)),
        "prefers_longer": float(np.mean((relation * longer)[ordered] + 1) / 2) if ordered.any() else None,
        "valid": float(valid / due) if due else None,
        "contradicted": judge.contradicted_by_model,
        "rationale_faults": judge.rationale_faults,
        "empty": judge.by_model(cases.empty),
        "unread": judge.by_model(judge.unread),
        "foreign": judge.foreign,
        "steps": next_steps(judge, "agreement" in more, "audit" in more),
    }
    return JudgeProfile(row.name, **facts | more)


def longer_comparisons(cases: Cases, relation: np.ndarray, longer: np.ndarray, model: int) -> tuple[int, int]:
    """Return in how many comparisons of a model its response is the longer one, and how many there are.

    Args:
        relation, longer: the relations of all pairs by the judge and by length [pairs].
        model: its number in `cases.models`.
    """
    first, second = (cases.model_of[side] == model for side in cases.panel.pairs)
    compared = ~np.isnan(relation) & (first | second)
    return int((compared & (np.where(first, longer, -longer) == 1)).sum()), int(compared.sum())
