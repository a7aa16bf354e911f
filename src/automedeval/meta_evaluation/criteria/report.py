"""Report what judges of criteria say: candidates' means, criteria that are missed, cases, and the certificate."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.candidates import ranked
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import audits_of, known_of_judge
from automedeval.meta_evaluation.criteria.checklists import Labels, certificate_of, strict_majority
from automedeval.meta_evaluation.facts import best_of, facts_of
from automedeval.meta_evaluation.page import SHOWN_CASES, Bars, Table, render_report
from automedeval.meta_evaluation.table import VerdictTable, rows_of
from automedeval.records.text import UNDEFINED, number, span
from automedeval.records.types import question_text
from automedeval.stats.bootstrap import estimate, mean_of, plain

UNCERTIFIED = "uncertified: it was not compared with physicians' labels of these cases (--ratings)"


def criteria_result(
    cases: Cases,
    readings: Sequence[VerdictTable],
    labels: tuple[Labels, int] | None,
    resamples: int,
    audits: Sequence[str] = (),
    harm: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the figures of judges of criteria, certified if there are labels.

    Args:
        labels: what `read_labels` returns; None: no labels.
        audits: files audit.json of these judges, or their folders.
        harm: the harm of the answers by degree, as harm.json has it.

    Raises:
        RecordError: a fault of the audits (see `audits_of`).
    """
    certificate, labelled = None, np.zeros(len(cases.items), bool)
    if labels is not None:
        certificate = plain(certificate_of(cases, readings, labels[0], resamples))
        certificate["labels"]["of other cases"] = labels[1]
        labelled = ~np.isnan(np.stack([*labels[0].values()])).all(axis=0)
    judges = {}
    for reading in readings:
        judges[reading.name] = {
            "candidates": plain(estimate(candidates(cases, reading), len(cases), resamples)),
            "missed": missed(cases, reading),
            "certified": not np.isnan(strict_majority(reading.met[labelled])).all(),
        }
    result = {"cases": len(cases), "responses": cases.responses, "judges": judges, "certificate": certificate}
    rows = rows_of(readings)
    audited = audits_of(audits, rows)
    for reading, row in zip(readings, rows):
        stands = ranked(cases, row.relations)
        more = {"unclear": stands["unclear"], "harm": harm or {}}
        for model, each in judges[row.name]["candidates"].items():
            each["rank"] = stands["ranks"].get(model)
        judges[row.name] |= {"order": stands["order"], "level": stands["level"]}
        more |= {"agreement": [_credit(result, row.name)], "audit": audited.get(row.name)}
        profile = known_of_judge(cases, row, **read_shares(cases, reading), **more)
        judges[row.name]["facts"] = facts_of(profile)
    return result


def read_shares(cases: Cases, reading: VerdictTable) -> dict[str, Any]:
    """Return `valid` and `unread` of `JudgeProfile`: a verdict with an unread criterion is valid, and has no score."""
    valid = [verdict.checklist is not None for verdict in reading.verdicts]
    silent = _unread(cases, reading) == np.diff(cases.first_item)
    unread = {model: int(silent[at].sum()) for model, at in _shown(cases, reading).items()}
    return {"valid": sum(valid) / len(valid), "unread": unread}


def _credit(result: Mapping[str, Any], name: str) -> str:
    """Say how a judge agrees with physicians' labels, or that it is not certified by any."""
    if not result["judges"][name]["certified"]:
        return f"{name} is {UNCERTIFIED}."
    values = {key: span(each, 3) for key, each in result["certificate"]["judges"][name].items()}
    figures = "accuracy {accuracy}, balanced accuracy {balanced_accuracy}, AUROC {auroc}".format(**values)
    return f"Beside physicians' labels it has {figures}."


def _shown(cases: Cases, reading: VerdictTable) -> dict[str, np.ndarray]:
    """Return model → the numbers of its responses that the judge was shown, in the order of the models' names."""
    shown, models = reading.shown(), sorted(enumerate(cases.models), key=lambda each: each[1])
    places = {name: np.flatnonzero(shown & (cases.model_of == number)) for number, name in models}
    return {name: at for name, at in places.items() if len(at)}


def _unread(cases: Cases, reading: VerdictTable) -> np.ndarray:
    """Return how many criteria of each response no run could read: float [responses]."""
    return np.bincount(cases.response_of, np.isnan(reading.met), minlength=cases.responses)


def candidates(cases: Cases, reading: VerdictTable) -> dict[str, dict[str, Any]]:
    """Return the means of every candidate by name: over responses whose criteria are all read, with the range over all.

    "mean" and "harm", its part by points below 0, are statistics.
    """
    points, unread, case = cases.points, _unread(cases, reading), cases.panel.case
    scores, of_harm = (cases.checklist_scores(met) for met in (reading.met, np.where(points < 0, reading.met, 0.0)))
    whole, harm = (np.where(unread > 0, np.nan, each.score) for each in (scores, of_harm))
    means: dict[str, dict[str, Any]] = {}
    for model, at in _shown(cases, reading).items():
        means[model] = {"responses": len(at), "read": int((unread[at] == 0).sum()), "unread": int(unread[at].sum())}
        means[model] |= {"empty": int(cases.empty[at].sum())}
        for name in ("lowest", "highest"):
            ends = getattr(scores, name)[at]
            means[model][name] = None if np.isnan(ends).all() else float(np.nanmean(ends))
        for name, values in (("mean", whole), ("harm", harm)):
            means[model][name] = mean_of(values[at], case[at], len(cases), "no response is wholly read")
    return means


def missed(cases: Cases, reading: VerdictTable) -> dict[str, dict[str, Any]]:
    """Return, for each tag, the share of failed criteria: not met with points above 0, or met with points below.

    Unread criteria do not count. The most failed one comes first; each has the same share by candidate.
    """
    items_of: dict[str, list[int]] = defaultdict(list)
    for item, (_, criterion) in enumerate(cases.items):
        for tag in criterion.tags:
            items_of[tag].append(item)
    failed = np.where(cases.points > 0, 1 - reading.met, reading.met)
    failed[~reading.shown()[cases.response_of]] = np.nan
    result: dict[str, dict[str, Any]] = {}
    for tag, items in items_of.items():
        shares, models = failed[items], cases.model_of[cases.response_of[items]]
        read = ~np.isnan(shares)
        if read.any():
            by_model = {cases.models[each]: float(shares[read & (models == each)].mean()) for each in set(models[read])}
            by_model = dict(sorted(by_model.items()))
            result[tag] = {"criteria": int(read.sum()), "failed": float(shares[read].mean()), "candidates": by_model}
    return dict(sorted(result.items(), key=lambda each: -each[1]["failed"]))


def shown_cases(cases: Cases, readings: Sequence[VerdictTable]) -> list[dict[str, Any]]:
    """Return the first cases in the order of the file, each response with its criteria as each judge read them."""
    met_by = np.array([reading.met for reading in readings])
    columns = np.where(np.isnan(met_by), None, met_by).T.tolist()  # type: ignore[call-overload]
    shown = []
    for place in cases.file_order[:SHOWN_CASES]:
        case = cases.records[place]
        for at, response in enumerate(case.responses, cases.start[place]):
            met = columns[cases.first_item[at] : cases.first_item[at + 1]]
            rows = [
                {"criterion": each.criterion, "points": each.points, "met": of_judges}
                for each, of_judges in zip(case.criteria, met)
            ]
            about = {"id": case.id, "question": question_text(case.question), "model": response.model}
            shown.append(about | {"text": response.text, "rows": rows})
    return shown


def render_criteria(result: Mapping[str, Any], cases: Cases, readings: Sequence[VerdictTable]) -> dict[str, str]:
    """Return {"criteria.html": text, "criteria.md": text}."""
    each_mean = [
        (judge, model, each) for judge, own in result["judges"].items() for model, each in own["candidates"].items()
    ]
    certified = {name: name if own["certified"] else f"{name}, uncertified" for name, own in result["judges"].items()}
    rows = []
    for judge, model, each in each_mean:
        counts = [f"{each['read']} of {each['responses']}", each["unread"], each["empty"]]
        ends = f"{number(each['lowest'])} to {number(each['highest'])}"
        figures = (span(each["mean"], 3), span(each["harm"], 3), ends)
        rows.append((model, certified[judge], each["rank"] or UNDEFINED, *figures, *counts))
    head = ["candidate", "judge", "rank", "mean score", "of which harm", "of all responses"]
    head += ["wholly read", "unread criteria", "empty"]
    several = len(result["judges"]) > 1
    bars = [(f"{model}, by {judge}" if several else model, each["mean"], "") for judge, model, each in each_mean]
    return render_report(
        "automedeval.meta_evaluation", "criteria", f"Criteria: {Path(cases.source).stem}", words=sentences(result),
        facts=facts(result), bars=Bars("Mean score, of at most 1, with 95 % intervals", bars, (0.0, 1.0)),
        notes=result["notes"], figures=[], settings=result["settings"],
        tables=[Table(head, rows, "Mean scores of wholly read responses")], result=result, shown=shown_cases(cases, readings),
    )  # fmt: skip


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return the results in sentences: who is first, every judge's scores, and how physicians agree with each other."""
    lines = [_first(*next(iter(result["judges"].items())))]
    for name, judge in result["judges"].items():
        means = "; ".join(f"{model} {_mean(each)}" for model, each in judge["candidates"].items())
        lines.append(f"{name}: mean score {means}.")
    for name, each in (result["certificate"] or {}).get("physicians", {}).items():
        lines.append(f"{name} beside the majority of the others: accuracy {span(each['accuracy'], 3)}.")
    return lines


def _first(name: str, judge: Mapping[str, Any]) -> str:
    """Say which candidate scores highest by a judge, and of which it is not clearly different."""
    certified = "" if judge["certified"] else f" {name} is {UNCERTIFIED}."
    if not judge["order"]:
        return f"The models cannot be compared by {name}.{certified}"
    return f"By {name}: {best_of(judge['order'], judge['level'], 'scores higher', 'scores clearly highest')}{certified}"


def facts(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of each judge: what it is about → text."""
    several = len(result["judges"]) > 1
    return {
        f"{fact.rstrip('?')} ({name})" if several else fact: text
        for name, judge in result["judges"].items()
        for fact, text in judge["facts"].items()
    }


def _mean(each: Mapping[str, Any]) -> str:
    """Return a mean with its harm, and, where some responses are not wholly read, of how many it is and what all allow."""
    harm = f", {number(each['harm']['value'])} by harm" if each["harm"]["value"] else ""
    text = f"{span(each['mean'], 3)}{harm}"
    if each["read"] == each["responses"]:
        return text
    of_all = f"{number(each['lowest'])} to {number(each['highest'])}"
    return f"{text} (of {each['read']} of {each['responses']} responses; of all {of_all})"
