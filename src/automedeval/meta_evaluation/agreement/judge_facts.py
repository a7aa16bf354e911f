"""What is known of a judge by its verdicts, its audit and the ratings of its cases: its record, and facts beside a ranking."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.facts import LEAST_RATED, Audit, JudgeProfile
from automedeval.meta_evaluation.table import Row, VerdictTable
from automedeval.models.arguments import ChatArguments, EncoderArguments, command_line
from automedeval.records import RecordError, read_json
from automedeval.records.language import is_english
from automedeval.rubrics import without_scale
from automedeval.stats import bootstrap
from automedeval.stats.agreement import concordance

# What a record has under the names of `JudgeProfile`.
RECORDED = ("blind_to", "contradicted", "empty", "foreign", "rationale_faults", "unread")


def audits_of(places: Sequence[str], rows: Sequence[Row]) -> dict[str, Audit]:
    """Read audits, files audit.json or folders that hold one; return the name of a line → the audit of its judge.

    Raises:
        RecordError: a file is no audit, or of none of these judges.
    """
    by_line: dict[str, Audit] = {}
    for place in places:
        file = Path(place) / "audit.json" if Path(place).is_dir() else Path(place)
        content = read_json(file)
        if isinstance(content, dict) and "decodings" in content:
            raise RecordError(f"{file}: an earlier version wrote it: run automedeval audit again")
        try:
            audit, settings = Audit.read(content), content["judge"]["settings"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{file}: no audit.json of automedeval audit ({error})") from None
        audited = [row.name for row in rows if row.judge.settings is not None and row.judge.settings == settings]
        if not audited:
            which = f"{content['judge']['name']}, with the settings {settings}"
            raise RecordError(f"{file}: an audit of {which}; no judge of these verdicts has them")
        by_line |= dict.fromkeys(audited, audit)
    return by_line


def run_record(judge: VerdictTable) -> dict[str, Any]:
    """Return the record of a judge's run, which it left beside the verdicts; empty if it is not there."""
    try:
        file = judge.file and judge.file.parent / f"run-{judge.settings}.json"
        record = json.loads(file.read_text(encoding="utf-8")) if file else {}
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def usage(judge: VerdictTable) -> dict[str, float]:
    """Return the tokens of all verdicts; seconds and cost where the judge's run left its record beside the verdicts."""
    total: Counter[str] = Counter()
    for verdict in judge.verdicts:
        total.update({name: count for name, count in verdict.usage.items() if isinstance(count, int)})
    record, used = run_record(judge), dict[str, float](total)
    if seconds := sum(timing.get("seconds", 0) for timing in record.get("timings", ())):
        used["seconds"] = round(seconds, 1)
    prices = [record.get("arguments", {}).get(name) or 0.0 for name in ("price_in", "price_out")]
    if any(prices):
        tokens = (total["prompt_tokens"], total["completion_tokens"])
        used["cost"] = round(sum(count * price for count, price in zip(tokens, prices)) / 1e6, 4)
    return used


def next_steps(judge: VerdictTable, rated: bool, audited: bool) -> list[str]:
    """Return what to do next, so that more is known of the judge: rate cases, audit it."""
    steps = [] if rated else [f"Rate {min(LEAST_RATED, len(judge.cases))} cases."]
    if not audited:
        run = run_record(judge).get("arguments", {})
        follows_none = bool(run) or without_scale(judge.rubric_name)
        rubric = run.get("rubric") or (None if follows_none else judge.rubric_name.partition("@")[0])
        judged = {
            name: run.get(name) for name in ("rationale", "blank", "judge_name") if run.get(name) not in (None, True)
        }
        command = command_line(
            "audit", run, (EncoderArguments, ChatArguments), judge=run.get("judge") or "JUDGE", cases=judge.cases.source,
            rubric=rubric, **judged, output="audits/mine",
        )  # fmt: skip
        how = "Audit the judge with the options of its run, then give --audits audits/mine to the report"
        steps.append(f"{how}: {command}")
    return steps


def record_of(cases: Cases, row: Row) -> dict[str, Any]:
    """Return the record of a judge in agreement.json, as far as it needs no ratings, with a `Statistic` for every figure."""
    judge = row.judge
    record: dict[str, Any] = {
        "kind": judge.kind,
        "name": judge.name,
        "judge": judge.judge,
        "rubric": judge.rubric_name,
        "layout": judge.layout,
        "criterion": row.criterion,
        "settings": judge.settings,
        "checkpoint": judge.checkpoint,
        "verdicts": int(judge.verdicts_due.sum()),
        "errors": dict(judge.errors.most_common(8)),
        "blind_to": judge.blind_to,
        "contradicted": judge.contradicted_by_model,
        "rationale_faults": dict(
            sorted(Counter(each.rationale_fault for each in judge.valid if each.rationale_fault).items())
        ),
        "empty": judge.by_model(cases.empty),
        "unread": judge.by_model(judge.unread),
        "foreign": foreign(judge),
        "usage": usage(judge) if row.criterion in (None, *judge.criteria[:1]) else {},
        "polarity": "worse" if row.criterion in judge.worse else "better",
        "valid_rate": bootstrap.ratio(judge.verdicts_valid, judge.verdicts_due, reason="no verdict"),
        "prefers_longer": prefers_longer(cases, row.relations),
    }
    if row.slots is not None and len(row.slots):
        record["slots"] = [bootstrap.mean(total, count, int(count.sum())) for total, count in row.slots]
    if row.consistent is not None:
        record["order_consistency"] = bootstrap.ratio(*row.consistent)
    return record


def foreign(judge: VerdictTable) -> list[int]:
    """Return the answers in another language than English, and all: of a small judge, which reads English; else [0, 0]."""
    if judge.blind_to is None or without_scale(judge.rubric_name):
        return [0, 0]
    texts = [response.text for case in judge.cases.records for response in case.responses]
    shown = [text for text, asked in zip(texts, judge.asked) if asked]
    return [sum(is_english(text) is False for text in shown), len(shown)]


def prefers_longer(cases: Cases, relation: np.ndarray) -> bootstrap.Statistic:
    """Return how often the longer response is preferred, a tie as one half; pairs without a relation [pairs] are left out."""
    return concordance(cases.panel, np.where(np.isnan(relation), np.nan, cases.longer), relation)


def profile(name: str, record: Mapping[str, Any], **more: Any) -> JudgeProfile:
    """Return what the record of a judge in agreement.json says of it.

    Args:
        more: further arguments of `JudgeProfile`, or others than those that are found here.
    """
    known = {each: record[each] for each in RECORDED if each in record}
    known |= {"valid": record["valid_rate"]["value"], "prefers_longer": record["prefers_longer"]["value"]}
    known |= {"audit": Audit(**record["audit"])} if record.get("audit") else {}
    return JudgeProfile(name, **known | more)


def known_of_judge(cases: Cases, row: Row, first: str | None = None, **more: Any) -> JudgeProfile:
    """Return what is known of a judge, or of a judge of pairs on one criterion, by its verdicts.

    Args:
        first: the model that is first, or that is compared; None: none.
        more: as `profile` has it.
    """
    record = record_of(cases, row)
    for figure in ("valid_rate", "prefers_longer"):
        value = bootstrap.value_of(record[figure], len(cases))
        record[figure] = {"value": None if np.isnan(value) else value}
    if first is not None:
        more["longer"] = longer_comparisons(cases, row.relations, first)
    steps = next_steps(row.judge, bool(more.get("agreement")), more.get("audit") is not None)
    return profile(row.name, record, **{"first": first, "steps": steps} | more)


def longer_comparisons(cases: Cases, relation: np.ndarray, model: str) -> tuple[int, int]:
    """Return in how many comparisons of a model its response is the longer one, and how many there are."""
    first, second = (cases.model_of[side] == cases.models.index(model) for side in cases.panel.pairs)
    compared = ~np.isnan(relation) & (first | second)
    return int((compared & (np.where(first, cases.longer, -cases.longer) == 1)).sum()), int(compared.sum())
