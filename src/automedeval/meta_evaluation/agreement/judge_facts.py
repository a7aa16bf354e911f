"""What is known of a judge by its verdicts, its audit and the ratings of its cases: its record, and facts beside a ranking."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.evidence.run import in_words, marked_numbers, sources_of
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.facts import AGAINST, LEAST_RATED, Audit, JudgeProfile, spent
from automedeval.meta_evaluation.table import Row, VerdictTable
from automedeval.models.arguments import ChatArguments, EncoderArguments, next_command
from automedeval.records import RecordError, foreign_errors_at, question_text, read_json
from automedeval.records.language import is_english
from automedeval.records.run_record import columns_of_run, run_arguments
from automedeval.rubrics import without_scale
from automedeval.stats import bootstrap
from automedeval.stats.agreement import ACCURACIES, CORRELATIONS, concordance

# (case, model) of a response → its numbers that differ from the reference, see `evidence.run.marked_numbers`
Marks = dict[tuple[str, str], list[dict[str, Any]]]

# The measures of a record of agreement.json, and what they are called in words.
MEASURES = {name: name.replace("_", " ").capitalize() for name in ACCURACIES + CORRELATIONS}
# What a record has under the names of `JudgeProfile`.
RECORDED = ("blind_to", "differs", "empty", "foreign", "rationale_faults", "unread")


def audits_of(places: Sequence[str], rows: Sequence[Row]) -> dict[str, Audit]:
    """Read audits, files audit.json or folders that hold one; return the name of a line → the audit of its judge."""
    by_line: dict[str, Audit] = {}
    for place in places:
        file = Path(place) / "audit.json" if Path(place).is_dir() else Path(place)
        content = read_json(file)
        place = f"{file}: no audit.json of automedeval audit"
        with foreign_errors_at(place, ValueError, KeyError, TypeError, AttributeError):
            audit, settings = Audit.read(content), content["judge"]["settings"]
        audited = [
            row.name
            for row in rows
            if row.judge.settings is not None and row.judge.settings == settings
        ]
        if not audited:
            which = f"{content['judge']['name']}, with the settings {settings}"
            raise RecordError(f"{file}: an audit of {which}; no judge of these verdicts has them")
        by_line |= dict.fromkeys(audited, audit)
    return by_line


def blind_to(judge: VerdictTable) -> list[str] | None:
    """Return the kinds of danger that a judge made like this one cannot see; None where this is not known."""
    return next(
        (verdict.extra["blind_to"] for verdict in judge.verdicts if "blind_to" in verdict.extra),
        None,
    )


@lru_cache(maxsize=4)  # asked for by every part of a page
def differing(judge: VerdictTable) -> Marks:
    """Return the numbers that differ from the reference, or the books that a judge read, of every response that has these."""
    shown = {
        (verdict.case_id, model): marks
        for verdict in judge.valid
        for model, marks in verdict.extra.get("differs", {}).items()
    }
    for case in judge.cases.records:
        for index, response in enumerate(case.responses):
            key = (case.id, response.model)
            sources = sources_of(case, index, "reference")
            if key in shown or not sources:
                continue
            marks, unread = marked_numbers(question_text(case.question), response.text, sources)
            if unread is None:
                shown[key] = marks
    return shown


def differing_by_model(judge: VerdictTable) -> dict[str, list[Any]]:
    """Return model → how many answers have a number that differs, of how many, the largest in words, and from what."""
    found: dict[str, list[Any]] = {}
    largest = dict[str, float]()
    for (_, model), marks in sorted(differing(judge).items()):
        counts = found.setdefault(model, [0, 0, "", ""])
        counts[0] += bool(marks)
        counts[1] += 1
        if marks and marks[0]["factor"] > largest.get(model, 0):
            largest[model] = marks[0]["factor"]
            kind = "reference" if marks[0]["source"] == "reference" else "books"
            counts[2:] = in_words(marks[0]), AGAINST[kind]
    return found


def notes_on(judge: VerdictTable) -> list[str]:
    """Return what a report has to state: cases and runs without a verdict, models and pairs that were not asked about."""
    cases, name, notes = judge.cases, judge.name, []

    def without(there: np.ndarray) -> str:
        first = cases.records[there[0]].id
        return f"no verdict on {len(there)} of {len(cases)} cases, for example {first!r}: counted as invalid"

    if (missing := np.flatnonzero(judge.given == 0)).size:
        notes.append(f"{name}: {without(missing)}")
    if never := [cases.models[number] for number in np.unique(cases.model_of[~judge.asked])]:
        shown = ", ".join(never[:3]) + (f" and {len(never) - 3} more" if len(never) > 3 else "")
        notes.append(f"{name} was never asked about {shown}: left out of its figures")
    for run in judge.runs if len(judge.runs) > 1 else ():
        there = np.bincount(judge.case_of[judge.run == run], minlength=len(cases))
        if (missing := np.flatnonzero((there == 0) & (judge.given > 0))).size:
            notes.append(f"{name}, run {run}: {without(missing)} in that run")
    first, second = cases.panel.pairs
    if left := int((judge.asked[first] & judge.asked[second] & ~judge.asked_pairs).sum()):
        notes.append(
            f"{name} was never asked to compare {left} of {len(first)} pairs: left out of its figures"
        )
    return notes


def next_steps(judge: VerdictTable, rated: bool, audited: bool) -> list[str]:
    """Return what to do next, so that more is known of the judge: rate cases, audit it."""
    if not judge.valid:
        return ["Read what the judge wrote, in the cases of the page."]
    steps = [] if rated else [f"Rate {min(LEAST_RATED, len(judge.cases))} cases."]
    run = run_arguments(judge.file.with_name(f"run-{judge.settings}.json")) if judge.file else {}
    columns = columns_of_run(filter(None, [judge.file]), judge.cases.source)
    in_words = judge.rubric is not None and judge.rubric.in_words
    if not (
        audited or in_words or run.get("batch_file") or run.get("evidence")
    ):  # an audit asks, and has no books
        follows_none = run or without_scale(judge.rubric_name)
        own = None if follows_none else judge.rubric_name.partition("@")[0]
        chosen = (
            (name, run.get(name)) for name in ("rationale", "score_decoding", "blank", "judge_name")
        )
        judged = {name: value for name, value in chosen if value not in (None, True)} | {
            "seed": run.get("seed") or ""
        }
        command = next_command(
            "audit", run, (EncoderArguments, ChatArguments), judge=run.get("judge") or "JUDGE", cases=judge.cases.source,
            columns=columns, rubric=run.get("rubric") or own, **judged, output="audits/mine",
        )  # fmt: skip
        how = "Audit the judge with the options of its run, then give --audits audits/mine to the report"
        steps.append(f"{how}: {command}")
    return steps


def record_of(cases: Cases, row: Row) -> dict[str, Any]:
    """Return the record of a judge in agreement.json, as far as it needs no ratings, with a `Statistic` for every figure."""
    judge = row.judge
    faults = Counter(each.rationale_fault for each in judge.valid if each.rationale_fault)
    return {
        "kind": judge.kind,
        "name": judge.name,
        "judge": judge.judge,
        "rubric": judge.rubric_name,
        "criterion": row.criterion,
        "blind_to": blind_to(judge),
        "settings": judge.settings,
        "checkpoint": judge.checkpoint,
        "differs": differing_by_model(judge),
        "verdicts": int(judge.verdicts_due.sum()),
        "spent": spent(judge.verdicts),
        "errors": dict(judge.errors.most_common(8)),
        "rationale_faults": dict(sorted(faults.items())),
        "foreign": foreign(judge),
        "empty": judge.by_model(cases.empty),
        "unread": judge.by_model(judge.unread),
        "valid_rate": bootstrap.ratio(
            judge.verdicts_valid, judge.verdicts_due, reason="no verdict"
        ),
        "prefers_longer": prefers_longer(cases, row.relations),
    }


def foreign(judge: VerdictTable) -> list[int]:
    """Return the answers in another language than English, and all: of a small judge, which reads English; else [0, 0]."""
    if blind_to(judge) is None or without_scale(judge.rubric_name):
        return [0, 0]
    texts = [response.text for case in judge.cases.records for response in case.responses]
    shown = [text for text, asked in zip(texts, judge.asked) if asked]
    return [sum(is_english(text) is False for text in shown), len(shown)]


def prefers_longer(cases: Cases, relation: np.ndarray) -> bootstrap.Statistic:
    """Return how often the longer response is preferred, a tie as one half; pairs without a relation [pairs] are left out."""
    return concordance(cases.panel, np.where(np.isnan(relation), np.nan, cases.longer), relation)


def profile(name: str, record: Mapping[str, Any], **more: Any) -> JudgeProfile:
    """Return what the record of a judge in agreement.json says of it; `more` are further arguments of `JudgeProfile`."""
    known = {each: record[each] for each in RECORDED if each in record}
    known |= {
        "valid": record["valid_rate"]["value"],
        "prefers_longer": record["prefers_longer"]["value"],
    }
    if audit := record.get("audit"):
        known["audit"] = Audit(**audit)
    return JudgeProfile(name, **known | more)


def known_of_judge(cases: Cases, row: Row, **more: Any) -> JudgeProfile:
    """Return what is known of a line by its verdicts; `more` are further arguments of `JudgeProfile`."""
    record = bootstrap.plain(bootstrap.estimate(record_of(cases, row), len(cases)))
    steps = next_steps(row.judge, bool(more.get("agreement")), more.get("audit") is not None)
    return profile(row.name, record, **{"steps": steps} | more)
