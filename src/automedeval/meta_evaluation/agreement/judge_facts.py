"""What is known of a judge by its verdicts, its audit and the ratings of its cases: its record, and facts beside a ranking."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from automedeval.evidence.run import in_words, marked_numbers, reference_of
from automedeval.meta_evaluation.agreement.candidates import first_three
from automedeval.meta_evaluation.facts import (
    AGAINST,
    BROKEN,
    Audit,
    JudgeProfile,
    spent,
)
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import Row, Rows, VerdictTable
from automedeval.models.arguments import ChatArguments, EncoderArguments, next_command
from automedeval.records import (
    JsonObject,
    RecordError,
    foreign_errors_at,
    question_text,
    read_json,
)
from automedeval.records.language import foreign_answers
from automedeval.records.run_record import columns_of_run, run_arguments
from automedeval.records.text import several
from automedeval.rubrics import without_scale
from automedeval.stats.agreement import ACCURACIES, CORRELATIONS, concordance
from automedeval.stats.bootstrap import (
    SHARE,
    Statistic,
    estimate,
    how_many,
    is_known,
    mean_of,
    only,
    plain,
    ratio,
)

# (case, model) of a response → its numbers that differ from the reference, see `evidence.run.marked_numbers`; None of one
# that is not compared, because it or the reference is in another language than English
Marks = dict[tuple[str, str], list[JsonObject] | None]

# Of a judge where no ratings can be given.
UNRATED = "Not measured yet: the report compares it with people's ratings or labels."
# The measures of a record of agreement.json, and what they are called in words.
MEASURES = {name: name.replace("_", " ").capitalize() for name in ACCURACIES + CORRELATIONS}
# What a record has under the names of `JudgeProfile`.
RECORDED = (
    "blind_to", "broken", "changed", "differs", "empty", "foreign", "on_criteria", "orders", "prefers_longer",
    "rationale_faults", "uncompared", "unread",
)  # fmt: skip


def audits_of(places: Sequence[str], rows: Rows) -> dict[str, Audit]:
    """Read audits, files audit.json or folders that hold one; return the name of a line → the audit of its judge."""
    by_line: dict[str, Audit] = {}
    for place in places:
        file = Path(place)
        if file.is_dir():
            file /= "audit.json"
        content = read_json(file)
        no_audit = f"{file}: no audit.json of automedeval audit"
        with foreign_errors_at(no_audit, ValueError, KeyError, TypeError, AttributeError):
            audit, settings = Audit.read(content), content["judge"]["settings"]
        audited = [row.name for row in rows if row.judge.settings == settings]
        if settings is None or not audited:
            raise RecordError(
                f"{file}: an audit of {content['judge']['name']}, with the settings {settings}; "
                "no judge of these verdicts has them"
            )
        if audited[0] in by_line:
            raise RecordError(
                f"--audits: of {' and '.join(places)} two are of {audited[0]}: give one of each"
            )
        by_line |= dict.fromkeys(audited, audit)
    return by_line


def blind_to(judge: VerdictTable) -> list[str] | None:
    """Return the kinds of danger that a judge made like this one cannot see; None where this is not known."""
    for verdict in judge.verdicts:
        if verdict.blind_to is not None:
            return list(verdict.blind_to)
    return None


@lru_cache(maxsize=2)  # of every judge of a report, and for every part of its page
def _beside_references(cases: Cases) -> Marks:
    """Return the numbers that differ from the reference, of each response to a case with one."""
    marks_of = {}
    for case in cases.records:
        reference = reference_of(case)
        for response in case.responses if reference else ():
            marks, unread = marked_numbers(question_text(case.question), response.text, reference)
            marks_of[case.id, response.model] = marks if unread is None else None
    return marks_of


def differing(judge: VerdictTable) -> Marks:
    """Return the numbers that differ from the reference, or the books that a judge read, of each response that has either."""
    marks_of = _beside_references(judge.cases).copy()
    for verdict in judge.valid:
        for model, marks in (verdict.differs or {}).items():
            marks_of[verdict.case_id, model] = marks
    return marks_of


def differing_by_model(judge: VerdictTable) -> dict[str, list[Any]]:
    """Return model → how many answers have a number that differs, of how many, the largest in words, and from what."""
    by_model: dict[str, list[Any]] = {}
    for (_, model), marks in sorted(differing(judge).items()):
        if marks is not None:
            by_model.setdefault(model, []).append(marks)
    for model, of_answers in by_model.items():
        wrong = [marks[0] for marks in of_answers if marks]
        words = ["", ""]
        if wrong:
            largest = max(wrong, key=itemgetter("factor"))
            words = [in_words(largest), AGAINST.get(largest["source"], AGAINST["books"])]
        by_model[model] = [len(wrong), len(of_answers), *words]
    return by_model


def notes_on(judge: VerdictTable) -> list[str]:
    """Return what a report has to state: cases and runs without a verdict, models and pairs that were not asked about."""
    cases, name, notes = judge.cases, judge.name, []
    for run in judge.runs:
        in_run = np.bincount(judge.case_of[judge.run == run], minlength=len(cases))
        if missing := np.flatnonzero(in_run == 0).tolist():
            who = f"{name}, run {run}" if len(judge.runs) > 1 else name
            first = cases.records[missing[0]].id
            notes.append(
                f"{who}: no verdict on {len(missing)} of {len(cases)} cases, for example "
                f"{first!r}: counted as invalid"
            )
    if never := [cases.models[number] for number in np.unique(cases.model_of[~judge.asked])]:
        notes.append(f"{name} was never asked about {first_three(never)}: left out of its figures")
    both_asked = judge.asked[np.stack(cases.panel.pairs)].all(axis=0)
    if left := how_many(both_asked & ~judge.asked_pairs):
        notes.append(
            f"{name} was never asked to compare {left} of {len(both_asked)} pairs: left out of its "
            "figures"
        )
    return notes


def next_steps(judge: VerdictTable, unrated: int, audited: bool) -> list[str]:
    """Return what to do next, so that more is known of the judge: rate more cases, audit it."""
    if not judge.valid:
        return ["Read what the judge wrote, in the cases of the page."]
    steps = [f"Rate {several(unrated, 'unrated case')}."] if unrated > 0 else []
    if judge.judge.startswith("recording:"):
        return [*steps, "A recording cannot be audited: it has no answers to changed cases."]
    run = _run_of(judge)
    # An audit asks, and has no books; it is of a judge before its calibration.
    is_audited = audited or judge.judge.endswith(", calibrated")
    if is_audited or judge.in_words or run.get("batch_file") or run.get("evidence"):
        return steps
    columns = columns_of_run(judge.files, judge.cases.source)
    own = None
    if not run and not without_scale(judge.rubric_name):
        own = judge.rubric.place if judge.rubric else "RUBRIC.yaml"
    names = ("rationale", "score_decoding", "blank", "judge_name")
    options = {name: run.get(name) for name in names if run.get(name) is not True}
    command = next_command(
        "audit", run, (EncoderArguments, ChatArguments), judge=run.get("judge") or "JUDGE", cases=judge.cases.source,
        columns=columns, rubric=run.get("rubric") or own, seed=run.get("seed") or None, **options, output="audits/mine",
    )  # fmt: skip
    return [
        *steps,
        "Audit the judge with the options of its run, then give --audits audits/mine to the report: "
        f"{command}",
    ]


def _run_of(judge: VerdictTable) -> JsonObject:
    """Return the arguments of the run that gave the verdicts; empty where its record is not beside them."""
    if not judge.files:
        return {}
    return run_arguments(judge.files[-1].with_name(f"run-{judge.settings}.json"))


def record_of(row: Row) -> JsonObject:
    """Return the record of a judge in agreement.json, as far as it needs no ratings, with a `Statistic` for every figure."""
    judge = row.judge
    cases = judge.cases
    errors = Counter(verdict.error or "unknown" for verdict in judge.verdicts if not verdict.valid)
    faults = Counter(filter(None, (verdict.rationale_fault for verdict in judge.valid)))
    return {
        "kind": judge.kind,
        "name": judge.name,
        "judge": judge.judge,
        "rubric": judge.rubric_name,
        "criterion": row.criterion,
        "on_criteria": judge.on_criteria,
        "blind_to": blind_to(judge),
        "settings": judge.settings,
        "checkpoint": judge.checkpoint,
        "changed": judge.changed,
        "differs": differing_by_model(judge),
        "uncompared": sum(marks is None for marks in differing(judge).values()),
        "verdicts": how_many(judge.verdicts_due),
        "spent": spent(judge.verdicts, judge.files),
        "errors": dict(errors.most_common(8)),
        "rationale_faults": dict(faults.most_common()),
        "broken": faults.total() > BROKEN * len(judge.valid),
        "foreign": foreign(judge),
        "empty": judge.by_model(judge.silent),
        "unread": judge.by_model(judge.unread),
        "valid_rate": ratio(judge.verdicts_valid, judge.verdicts_due, "no verdict"),
        "prefers_longer": prefers_longer(cases, row.wins),
        "prefers_first": prefers_first(row),
        "orders": _run_of(judge).get("orders"),
    }


def foreign(judge: VerdictTable) -> list[int]:
    """Return the answers in another language than English, and all: of a small judge, which reads English; else [0, 0]."""
    if blind_to(judge) is None or without_scale(judge.rubric_name):
        return [0, 0]
    foreign_asked = np.array(foreign_answers(judge.cases.records), bool)[judge.asked]
    return [how_many(foreign_asked), len(foreign_asked)]


def prefers_longer(cases: Cases, relation: ndarray) -> Statistic:
    """Return how often the longer response is preferred, a tie as one half; pairs without a relation [pairs] are left out."""
    return concordance(
        cases.panel,
        only(cases.longer, is_known(relation)),
        relation,
        "no judged pair of unequal length",
    )


def prefers_first(row: Row) -> Statistic:
    """Return how often the response that a prompt shows earlier is preferred, a tie as one half, of all pairs in a prompt
    without an empty response.

    A tie is what `Row.wins` takes as one. Undefined where every verdict shows the responses in the order of the case: there the
    place is not told from the model.
    """
    judge, panel = row.judge, row.judge.panel
    first, second = panel.pairs
    values = judge.own_on(row.criterion) if row.criterion else judge.best
    # 1 where the first response of the case is shown earlier, -1 where it is shown later.
    way = np.sign(judge.slot[second] - judge.slot[first])
    wins = way * judge.relation_of(values[first] - values[second], row.band)
    empty = judge.cases.empty[judge.response]
    shares = only((1 + wins) / 2, (way < 0).any() & ~(empty[first] | empty[second]))
    return mean_of(shares, panel.case_of_pair, panel.cases, "no order but that of the cases", SHARE)


def profile(name: str, record: Mapping[str, Any], **more: Any) -> JudgeProfile:
    """Return what the record of a judge in agreement.json says of it; `more` are further arguments of `JudgeProfile`."""
    known = {field: record[field] for field in RECORDED if field in record} | {
        "valid": record["valid_rate"]["value"],
        "calibrated": ", calibrated" in record["judge"],
        "prefers_first": record["prefers_first"]["value"],
    }
    if audit := record.get("audit"):
        known["audit"] = Audit(**audit)
    return JudgeProfile(name, **known | more)


def known_of_judge(row: Row, **more: Any) -> JudgeProfile:
    """Return what is known of a line by its verdicts; `more` are further arguments of `JudgeProfile`."""
    record = plain(estimate(record_of(row), row.judge.cases.clusters))
    steps = next_steps(row.judge, 0, more.get("audit") is not None)
    return profile(row.name, record, **{"steps": steps, "agreement": [UNRATED]} | more)
