"""Report what judges of criteria say: candidates' means, criteria that are missed, cases, and the certificate."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.candidates import ranked
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import audits_of, known_of_judge
from automedeval.meta_evaluation.criteria.checklists import Labels, certificate_of
from automedeval.meta_evaluation.facts import best_of, facts_of
from automedeval.meta_evaluation.page import SHOWN_CASES, Bars, Table, render_report
from automedeval.meta_evaluation.table import VerdictTable, rows_of
from automedeval.metrics.embedding import TextEncoder
from automedeval.records import Response
from automedeval.records.text import number, span
from automedeval.records.types import question_text
from automedeval.stats.bootstrap import estimate, mean_of, plain
from automedeval.stats.checklist import MEAN_RULES, checklist_score, length_adjusted, mean_score

MEAN = "unclipped"  # the mean that stands first: harm may take it below 0; the page has the others of `MEAN_RULES` too
UNCERTIFIED = "uncertified: it was not compared with physicians' labels of these cases (--ratings)"


def criteria_result(
    cases: Cases,
    readings: Sequence[VerdictTable],
    labels: Labels | None,
    encoder: TextEncoder | None,
    resamples: int,
    audits: Sequence[str] = (),
    harm: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the figures of judges of criteria, certified if there are labels.

    Args:
        encoder: of the scores that need no judge; None leaves out those that compare embeddings.
        audits: files audit.json of these judges, or their folders.
        harm: the harm of the answers by degree, as harm.json has it.

    Raises:
        RecordError: a fault of the audits (see `audits_of`).
    """
    certificate = plain(certificate_of(cases, readings, labels, encoder, resamples)) if labels else None
    judges = {}
    for reading in readings:
        judges[reading.name] = {
            "candidates": plain(estimate(candidates(cases, reading), len(cases), resamples)),
            "missed": missed(cases, reading),
            "topics": missed(cases, reading, by_topic=True),
            "certified": labels is not None and not np.isnan(reading.met(labels.pairs)[0]).all(),
        }
    result = {"cases": len(cases), "responses": cases.responses, "judges": judges, "certificate": certificate}
    rows = rows_of(readings)
    audited = audits_of(audits, rows)
    for reading, row in zip(readings, rows):
        stands = ranked(cases, row.relations)
        more = {"first": next(iter(stands["order"]), None), "unclear": stands["unclear"], "harm": harm or {}}
        for model, each in judges[row.name]["candidates"].items():
            each["rank"] = stands["ranks"].get(model)
        more |= {"agreement": [_credit(result, row.name)], "audit": audited.get(row.name)}
        profile = known_of_judge(cases, row, **read_shares(cases, reading), **more)
        judges[row.name]["facts"] = [list(fact) for fact in facts_of(profile)]
    return result


def read_shares(cases: Cases, reading: VerdictTable) -> dict[str, Any]:
    """Return `valid` and `unread` of `JudgeProfile`: a verdict with an unread criterion is valid, and has no score."""
    valid = [verdict.checklist is not None for verdict in reading.verdicts]
    unread = {
        model: sum(met.count(None) == len(met) for _, _, met in answers)
        for model, answers in _answers(cases, reading).items()
    }
    return {"valid": sum(valid) / len(valid), "unread": unread}


def _credit(result: Mapping[str, Any], name: str) -> str:
    """Say how a judge agrees with physicians' labels, or that it is not certified by any."""
    if not result["judges"][name]["certified"]:
        return f"{name} is {UNCERTIFIED}."
    values = {key: span(each, 3) for key, each in result["certificate"]["judges"][name]["all"].items()}
    figures = "accuracy {accuracy}, balanced accuracy {balanced_accuracy}, AUROC {auroc}".format(**values)
    return f"Beside physicians' labels it has {figures}."


def _answers(cases: Cases, reading: VerdictTable) -> dict[str, list[tuple[int, Response, list[float | None]]]]:
    """Return model → (case, response, share of the runs that say that each criterion is met) of what the judge was shown.

    The share is None where no run read the criterion; a response of which nothing was read is among them.
    """
    answers = defaultdict(list)
    for place, slot in reading.checklists:
        response = cases.records[place].responses[slot]
        answers[response.model].append((place, response, reading.shares(place, slot)))
    return dict(sorted(answers.items()))


def candidates(cases: Cases, reading: VerdictTable) -> dict[str, dict[str, Any]]:
    """Return the means of every candidate by name: over responses whose criteria are all read, with the range over all.

    "mean" and "harm", its part by points below 0, are statistics.
    """
    means = {}
    for model, answers in _answers(cases, reading).items():
        scores: list[float | None] = []
        harm, adjusted, ends = [], [], []
        for place, response, met in answers:
            points = [each.points for each in cases.records[place].criteria]
            score = checklist_score(points, met)
            ends.append((score.lowest, score.highest))
            scores.append(None if None in met else score.score)
            of_harm = checklist_score(points, [share if worth < 0 else 0.0 for worth, share in zip(points, met)])
            harm.append(None if scores[-1] is None else of_harm.score)
            adjusted.append(length_adjusted(scores[-1], len(response.text)))
        where = np.array([place for place, _, _ in answers])
        lowest, highest = (mean_score(each, MEAN) for each in zip(*ends))
        means[model] = {
            "responses": len(answers),
            **{rule: mean_score(scores, rule) for rule in MEAN_RULES},
            "mean": mean_of(np.array(scores, float), where, len(cases), "no response is wholly read"),
            "harm": mean_of(np.array(harm, float), where, len(cases), "no response is wholly read"),
            "length_adjusted": mean_score(adjusted, MEAN),
            "lowest": lowest,
            "highest": highest,
            "read": sum(None not in met for _, _, met in answers),
            "unread": sum(met.count(None) for _, _, met in answers),
            "empty": sum(response.is_empty for _, response, _ in answers),
        }
    return means


def missed(cases: Cases, reading: VerdictTable, by_topic: bool = False) -> dict[str, dict[str, Any]]:
    """Return, for each tag or topic, the share of failed criteria: not met with points above 0, or met with points below.

    Unread criteria do not count. The most failed one comes first; each has the same share by candidate. There are no topics if
    there are as many as cases: they say nothing of a theme.
    """
    topics = [case.topic for case in cases.records if case.topic] if by_topic else []
    failed: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for model, answers in _answers(cases, reading).items() if not by_topic or len(set(topics)) < len(topics) else ():
        for place, _, shares in answers:
            case = cases.records[place]
            for met, criterion in zip(shares, case.criteria):
                themes = criterion.tags if not by_topic else [case.topic] if case.topic else []
                if met is not None:
                    for theme in themes:
                        failed[theme][model].append(1 - met if criterion.points > 0 else met)
    result: dict[str, dict[str, Any]] = {
        theme: {
            "criteria": sum(map(len, by_model.values())),
            "failed": float(np.mean([each for values in by_model.values() for each in values])),
            "candidates": {model: float(np.mean(values)) for model, values in sorted(by_model.items())},
        }
        for theme, by_model in failed.items()
    }
    return dict(sorted(result.items(), key=lambda each: -each[1]["failed"]))


def shown_cases(cases: Cases, readings: Sequence[VerdictTable]) -> list[dict[str, Any]]:
    """Return the first cases in the order of the file, each response with its criteria as each judge read them."""
    shown = []
    for place in cases.file_order[:SHOWN_CASES]:
        case = cases.records[place]
        for slot, response in enumerate(case.responses):
            columns = zip(*(reading.shares(place, slot) for reading in readings))
            rows = [
                {"criterion": each.criterion, "points": each.points, "met": met}
                for each, met in zip(case.criteria, columns)
            ]
            about = {"id": case.id, "question": question_text(case.question), "model": response.model}
            shown.append(about | {"text": response.text, "rows": rows})
    return shown


def render_criteria(result: Mapping[str, Any], cases: Cases, readings: Sequence[VerdictTable]) -> dict[str, str]:
    """Return {"criteria.html": text, "criteria.md": text}."""
    each_mean = [
        (judge, model, each) for judge, own in result["judges"].items() for model, each in own["candidates"].items()
    ]
    rows = [
        (model, judge, each["rank"], each["responses"], each["read"], span(each["mean"], 3), span(each["harm"], 3))
        for judge, model, each in each_mean
    ]
    head = ("candidate", "judge", "rank", "responses", "wholly read", "mean score", "of which harm")
    several = len(result["judges"]) > 1
    bars = [(f"{model}, by {judge}" if several else model, each["mean"], "") for judge, model, each in each_mean]
    return render_report(
        "automedeval.meta_evaluation", "criteria", f"Criteria: {Path(cases.source).stem}", words=sentences(result),
        facts=facts(result), bars=Bars("Mean score, of at most 1, with 95 % intervals", bars, (0.0, 1.0)),
        notes=result["notes"], figures=[], settings=result["settings"], tables=[Table(head, rows)], result=result,
        shown=shown_cases(cases, readings),
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
    ranks = {model: each["rank"] for model, each in judge["candidates"].items() if each["rank"]}
    certified = "" if judge["certified"] else f" {name} is {UNCERTIFIED}."
    if not ranks:
        return f"The models cannot be compared by {name}.{certified}"
    mean = {model: judge["candidates"][model]["mean"]["value"] or 0.0 for model in ranks}
    best_rank = {model: int(rank.partition("–")[0]) for model, rank in ranks.items()}
    order = sorted(ranks, key=lambda model: (best_rank[model], -mean[model]))
    level = [model for model in order[1:] if best_rank[model] == 1]
    return f"By {name}: {best_of(order, level, 'scores higher', 'scores clearly highest')}{certified}"


def facts(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of each judge: what it is about → text."""
    several = len(result["judges"]) > 1
    return {
        f"{fact.rstrip('?')} ({name})" if several else fact: text
        for name, judge in result["judges"].items()
        for fact, text in judge["facts"]
    }


def _mean(each: Mapping[str, Any]) -> str:
    """Return a mean with its harm, and, where some responses are not wholly read, of how many it is and what all allow."""
    harm = f", {number(each['harm']['value'])} by harm" if each["harm"]["value"] else ""
    text = f"{span(each['mean'], 3)}{harm}"
    if each["read"] == each["responses"]:
        return text
    of_all = f"{number(each['lowest'])} to {number(each['highest'])}"
    return f"{text} (of {each['read']} of {each['responses']} responses; of all {of_all})"
