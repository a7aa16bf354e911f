"""Fill a judge's card, the template `model_card.md`, from the records of its training, of a report and of an audit."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard

from automedeval.meta_evaluation.agreement.judge_facts import MEASURES, profile
from automedeval.meta_evaluation.facts import Audit, JudgeProfile, are_simulated, facts_of
from automedeval.meta_evaluation.report.text import credit_of, real_judges
from automedeval.models.checkpoints import ADAPTER, read_history, read_record
from automedeval.records import RecordError, errors_at, read_json
from automedeval.records.hub_names import hub_name
from automedeval.records.templates import environment
from automedeval.records.types import JsonObject, take
from automedeval.rubrics import read_rubric
from automedeval.rubrics.published import PACKAGED, own_rubric
from automedeval.study.publishing.paths import short_path


def fill_card(
    template: str,
    checkpoint: Path,
    digest: str,
    repo: str,
    license: str | None,
    base_model: str | None = None,
    result: JsonObject | None = None,
    audit: JsonObject | None = None,
) -> str:
    """Return a judge's card with everything that is known of it.

    `checkpoint` is the folder that recipes/sft.py left, `digest` the `fingerprint` of its weights, `result` an agreement.json,
    `audit` an audit.json. Without a `base_model` the training record's is taken, if it is a Hub id. RecordError if training is
    not finished or not known here, or results or audit are of other weights, or of unknown ones.
    """
    kind, _, name = (license or "").partition(":")
    if not kind or (kind == "other") != bool(name):
        raise RecordError(
            "--license is missing: the Hub's name of a license that its base model's allows, or other:NAME"
        )
    history = read_history(checkpoint)
    record = read_record(checkpoint)
    if record is None:
        raise RecordError(f"{checkpoint}: no training/record.json: recipes/sft.py did not train it")
    base, commit = base_on_hub(record, base_model)
    known: JsonObject = {}
    if audit:
        known["audit"] = Audit.read(audit)
        audited = audit["judge"]
        if audited["checkpoint"] != digest:
            raise RecordError(
                f"audit.json: {audited['name']!r} was audited, on the checkpoint "
                f"{audited['checkpoint']}, and {checkpoint} is {digest}: audit it"
            )
    result = result or {}
    records = judge_records(result, digest) if result else {}
    judge = JudgeProfile(repo, **known)
    is_own = True  # the rubric of the figures
    if records:
        line, measured = next(iter(records.items()))
        is_own = measured["rubric"] == read_rubric(own_rubric(checkpoint) or PACKAGED).name
        known |= credit_of(result, line)
        judge = profile(line, measured, harm=result.get("harm", {}), **known)
    people = result.get("people") or {}
    simulated = are_simulated(people.get("annotators", ()))
    file = short_path(result["cases"]["file"]) if result else ""
    facts = record | {
        "repo": repo,
        "base_model": base_model or record["base"],
        "base_commit": commit,
        "stages": [replace(stage, dataset=short_path(stage.dataset)) for stage in history],
        "audit": audit,
        "known": facts_of(judge),
        "records": list(records.values()),
        "result": result,
        "file": file,
        "people": people,
        "is_own": is_own,
        "simulated": simulated,
        "measures": MEASURES,
    }
    card = ModelCard(environment("automedeval.records").from_string(template).render(facts))
    about: Any = card.data
    about.base_model = base
    about.license = kind
    about.license_name = name or None
    if people and is_own and not simulated:
        about.model_name = repo.rpartition("/")[2]
        about.eval_results = eval_results(Path(file).stem, records.values())
    return str(card)


def base_on_hub(record: JsonObject, base_model: str | None) -> tuple[str, str | None]:
    """Return the Hub id of the model that training began with, and its revision or commit, None where it is not known.

    RecordError if it is a folder of this machine, and no `base_model`, ORG/NAME or ORG/NAME@REVISION, says what that is.
    """
    if base_model is not None:
        return hub_name(base_model)
    base = record["base"]
    if base.startswith("models/") or Path(base).exists():
        raise RecordError(
            f"it was trained from {base}, a folder of this machine; --base_model names its Hub id"
        )
    return hub_name(base)[0], record.get("base_commit")


def adapter_files(checkpoint: Path, base_model: str | None) -> dict[str, bytes]:
    """Return what is published in the place of an adapter's configuration, whose base is a path of this machine: the Hub's."""
    if not (checkpoint / ADAPTER).is_file():
        return {}
    base, commit = base_on_hub(read_record(checkpoint) or {}, base_model)
    config = read_json(checkpoint / ADAPTER) | {"base_model_name_or_path": base, "revision": commit}
    return {ADAPTER: json.dumps(config, indent=2).encode()}


def eval_results(data: str, records: Iterable[JsonObject]) -> list[EvalResult]:
    """Return a judge's agreement with people on some data, on each criterion, as results that the Hub shows."""
    results = []
    for record in records:
        criterion = record.get("criterion")
        for name, label in MEASURES.items():
            measured = record.get(name)
            if measured and measured["value"] is not None:
                called = f"{label}, {criterion}" if criterion else label
                shown = EvalResult(
                    "text-generation", data, data, name, measured["value"], metric_name=called
                )
                results.append(shown)
    return results


def judge_records(result: JsonObject, digest: str) -> dict[str, JsonObject]:
    """Return what was found about the weights of a digest as a judge, a record for each criterion that it gave choices on.

    Of judges with these weights the report's main one is taken. RecordError if no judge has them:
    the weights of an endpoint or of a small judge are not recorded.
    """
    judges = real_judges(result)
    measured = {judge["name"]: judge.get("checkpoint") for judge in judges.values()}
    names = [name for name, weights in measured.items() if weights == digest]
    if not names:
        raise RecordError(
            f"agreement.json: no judge was measured on this checkpoint, {digest}, but {measured}: report on it"
        )
    main = result["main_judge"]["name"]
    name = main if main in names else names[0]
    return {line: record for line, record in judges.items() if record["name"] == name}


def read_result(file: Path, *keys: str) -> JsonObject:
    """Read the JSON object of agreement.json or audit.json; RecordError if it holds something else, or lacks a key."""
    result = read_json(file)
    with errors_at(f"{file}: not what automedeval report or audit wrote; run it again"):
        for key in keys:
            take(result, key, (dict, list))
    return result
