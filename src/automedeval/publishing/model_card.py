"""Fill a judge's card: write the recorded facts and figures between the markers of a hand-written card.

The hand-written part is `model_card.md`. Each block of `templates/model_card_parts.md.jinja`, such as `results`, is written
between its two markers, `<!-- results -->` and `<!-- /results -->`, from the records of training and measuring alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from automedeval.models.checkpoints import fingerprint, read_history, read_record
from automedeval.publishing.cards import front_matter
from automedeval.publishing.checks import json_object
from automedeval.publishing.paths import short_path
from automedeval.records import RecordError, read_text
from automedeval.records.hub_names import hub_name
from automedeval.reports.facts import Audit, JudgeProfile, facts_of
from automedeval.reports.page import environment
from automedeval.reports.text import against_best, interval, percent
from automedeval.stats.agreement import LABELS

MARKER = re.compile(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", re.S)


@dataclass(frozen=True)
class CardInputs:
    """What only the owner of a checkpoint knows about it.

    Args:
        repo: where it will stand on the Hub.
        base_model: the Hub id of the model that training started from; None takes the training record's, if that is one.
        datasets: the Hub ids of the data that it was trained on.
        judge: its name in the results; None where there is one judge.
    """

    repo: str
    base_model: str | None = None
    datasets: tuple[str, ...] = ()
    judge: str | None = None


def fill_card(
    card: str,
    checkpoint: Path,
    inputs: CardInputs,
    result: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
) -> str:
    """Return a judge's card with everything that is known of it written in.

    Args:
        card: the hand-written card, with its markers.
        checkpoint: the folder that recipes/sft.py left.
        inputs: what the owner states.
        result: what automedeval report found, `agreement.json`; None where nothing was measured.
        audit: what automedeval audit found, `audit.json`; None where there was none.

    Raises:
        RecordError: the checkpoint's training is not finished, or not known here; a marker is unknown; the results have no such
            judge, or several; they or the audit are of another checkpoint.
    """
    history, record = read_history(checkpoint), read_record(checkpoint)
    if record is None:
        raise RecordError(
            f"{checkpoint}: no training/record.json; the card tells how recipes/sft.py trained a checkpoint"
        )
    base = inputs.base_model or record["base"]
    if inputs.base_model is None and (base.startswith("models/") or Path(base).exists()):
        raise RecordError(
            f"{checkpoint}: was trained from {base}, a folder of this machine; --base_model names its Hub id"
        )
    records = judge_records(result, inputs.judge) if result else {}
    tied = result is not None and bool(records) and measured_on(checkpoint, result, records)
    facts = {
        **vars(inputs),
        "base_model": base,
        "base_commit": None if inputs.base_model else record.get("base_commit"),
        "stages": [replace(stage, dataset=short_path(stage.dataset)) for stage in history],
        "hours": training_hours(checkpoint, len(history)),
        "rows": record["identity"]["rows"],
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        "audit": None if audit is None else audit["perturbations"],
        "audited": None if audit is None else _audited(checkpoint, audit),
        **{name: record[name] for name in ("rubrics", "device", "commit")},
        **_result_facts(result, records),
        "tied": tied,
        "known": facts_of(_profile(inputs.judge or inputs.repo, records, audit, (result or {}).get("harm", {}))),
    }
    template = environment("automedeval.publishing").get_template("model_card_parts.md.jinja")
    context = template.new_context(facts)
    parts = {name: "".join(block(context)).strip() for name, block in template.blocks.items()}
    about = front_matter(card) | {"base_model": hub_name(base)[0], "datasets": list(inputs.datasets)}
    if result and tied and (index := model_index(inputs.repo, result, records)):
        about["model-index"] = index
    opening = yaml.safe_dump(about, sort_keys=False, allow_unicode=True, width=120)
    body = re.sub(r"\A---\n.*?\n---\n", "", card, count=1, flags=re.S)
    return f"---\n{opening}---\n{write_in(body, parts)}"


def write_in(text: str, parts: Mapping[str, str]) -> str:
    """Return a text with each part between its two markers, in place of what stood there.

    RecordError if markers have no part.
    """
    if unknown := [match[1] for match in MARKER.finditer(text) if match[1] not in parts]:
        raise RecordError(f"the card: markers <!-- {unknown[0]} -->: nothing is written there, only {', '.join(parts)}")
    return MARKER.sub(lambda match: f"<!-- {match[1]} -->\n{parts[match[1]]}\n<!-- /{match[1]} -->", text)


def training_hours(checkpoint: Path, stages: int) -> list[float | None]:
    """Return the hours of each stage, None where the checkpoint that it left is not on this machine any more."""
    hours: list[float | None] = [None] * stages
    record, place = read_record(checkpoint), stages
    while record is not None and place:
        place -= 1
        hours[place] = record["seconds"] / 3600
        start = Path(record["start"])
        # The folder may hold another run by now.
        same = (start / "config.json").exists() and fingerprint(start, []) == record["identity"]["start"]
        record = read_record(start) if same else None
    return hours


def judge_records(result: Mapping[str, Any], judge: str | None) -> dict[str, dict[str, Any]]:
    """Return what was found about one judge, a record for each criterion that it gave choices on.

    RecordError if there is no such judge, or several and none is named.
    """
    judges = {name: record for name, record in result["judges"].items() if record["kind"] == "judge"}
    names = list(dict.fromkeys(record["name"] for record in judges.values()))
    if judge is None and len(names) != 1:
        raise RecordError(f"agreement.json: has {len(names)} judges; --judge says which it is: {', '.join(names)}")
    if judge is not None and judge not in names:
        raise RecordError(f"agreement.json: no judge {judge!r}; there are {', '.join(names)}")
    return {name: record for name, record in judges.items() if record["name"] == (judge or names[0])}


def measured_on(checkpoint: Path, result: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a judge's verdicts were given by this checkpoint; False where they do not record which one.

    RecordError if another one gave them.
    """
    (recorded,) = {record.get("checkpoint") for record in records.values()}
    if recorded is None:
        return False
    digest, name = fingerprint(checkpoint, []), next(iter(records.values()))["name"]
    if recorded == digest:
        return True
    others = dict.fromkeys(row["name"] for row in result["judges"].values() if row.get("checkpoint") == digest)
    mend = f"--judge {' or '.join(others)} was measured on it" if others else "judge with it, and evaluate that"
    raise RecordError(
        f"agreement.json: {name} was measured on the checkpoint {recorded}, and {checkpoint} is {digest}; {mend}"
    )


def model_index(repo: str, result: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the measured figures as the Hub's `model-index` has them; an interval stands in a figure's name."""
    metrics = []
    for record in records.values():
        for measure, label in LABELS.items():
            for key, source in ((measure, ""), (f"{measure}_expected", ", from expected scores")):
                estimate = record.get(key)
                if estimate and estimate["value"] is not None:
                    about = f"{label}{source}{', ' + record['criterion'] if record['criterion'] else ''}"
                    within = "" if estimate["low"] is None else f"{interval(estimate, 2, 1)}, "
                    name = f"{about} ({within}n = {estimate['n']})"
                    metrics.append({"type": key, "value": round(estimate["value"], 4), "name": name})
    if not metrics:
        return []
    cases = short_path(result["cases"]["file"])
    results = {
        "task": {"type": "text-generation", "name": "Judging medical answers"},
        "dataset": {"type": re.sub(r"[^\w-]+", "-", cases), "name": cases},
        "metrics": metrics,
    }
    return [{"name": repo.split("/")[-1], "results": [results]}]


def _audited(checkpoint: Path, audit: Mapping[str, Any]) -> str:
    """Return in words on what a judge was audited, and whether it passed.

    RecordError if another checkpoint was audited.
    """
    audited = audit["judge"]
    if audited["checkpoint"] not in (None, digest := fingerprint(checkpoint, [])):
        raise RecordError(
            f"audit.json: the checkpoint {audited['checkpoint']} was audited, and {checkpoint} is {digest}"
        )
    outcomes = [row["outcome"] for row in audit["perturbations"] if row["limit"]]
    left = outcomes.count("not measured")
    met = f"{outcomes.count('passed')} of {len(outcomes) - left} limits are kept, {left} were not measured"
    word = {True: "passes", False: "does not pass", None: "neither passes nor fails"}[audit["passes"]]
    unknown = "" if audited["checkpoint"] else " The audit does not tell which weights it was made with."
    return f"Audited on {audit['cases']['cases']:,} cases as {audited['name']}: it {word}; {met}.{unknown}"


def _profile(
    name: str,
    records: Mapping[str, Mapping[str, Any]],
    audit: Mapping[str, Any] | None,
    harm: Mapping[str, Any],
) -> JudgeProfile:
    """Return what is known of the judge, from the first line of its results, its audit, and the harm of the answers."""
    record = next(iter(records.values()), {})
    best, name = record.get("best_baseline"), record.get("name", name)
    figure, agreement = record.get(record.get("headline", "")), []
    if figure and figure["value"] is not None:
        share = f"{percent(figure['value'])} of the pairs of responses as people do ({interval(figure)})"
        agreement = [f"{name} orders {share}."]
    return JudgeProfile(
        name,
        [*agreement, *against_best(name, best)],
        outcome=best and best["outcome"],
        blind_to=record.get("blind_to"),
        audit=None if audit is None else Audit.read(audit),
        prefers_longer=record.get("prefers_longer", {}).get("value"),
        valid=record.get("valid_rate", {}).get("value"),
        unread=record.get("unread", {}),
        harm=harm,
    )


def _result_facts(result: Mapping[str, Any] | None, records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if result is None or not records:
        return {"records": []}
    people = result.get("people") or {}
    counted = {name: record for name, record in result["judges"].items() if record["kind"] == "baseline"}
    first = next(iter(records.values()))
    return {
        "records": list(records.values()),
        "labels": LABELS if people else {},
        "ceiling": people.get("ceiling") or {},
        "judge": first["name"],
        "fingerprint": first["settings"],
        "checkpoint": first.get("checkpoint"),
        "people": people or None,
        # Sample ratings are made up, and say so in their annotators' names.
        "simulated": bool(people) and all(name.startswith("simulated") for name in people["annotators"]),
        "cases": {**result["cases"], "file": short_path(result["cases"]["file"])},
        "settings": result["settings"],
        "baselines": {name: record[record["headline"]] for name, record in counted.items()} if people else {},
    }


def read_result(file: str | Path, *keys: str) -> dict[str, Any]:
    """Read the JSON object of agreement.json or audit.json.

    RecordError if the file cannot be read, holds something else, or lacks one of the keys.
    """
    result = json_object(read_text(Path(file)), file)
    if missing := [key for key in keys if key not in result]:
        raise RecordError(
            f"{file}: has no {missing[0]!r}: not what automedeval report or audit wrote, or an earlier version; run it again"
        )
    return result
