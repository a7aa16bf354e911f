"""Report what judges of criteria say: candidates' means, criteria that are missed, cases, and the certificate."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.criteria import Labels, Reading, certify, has_checklists, read_checklists, read_labels
from automedeval.metrics.embedding import TextEncoder
from automedeval.records import Case, CaseCriterion
from automedeval.reports.page import render_twins
from automedeval.stats.bootstrap import plain
from automedeval.stats.checklist import MEAN_RULES, checklist_score, length_adjusted, mean_score

__all__ = ["criteria_result", "has_checklists", "render_criteria"]

SIMULATIONS = 500
MEANS = (*MEAN_RULES, "length_adjusted")
UNCERTIFIED = "uncertified: nobody compared this judge with physicians' labels of these cases (--criterion_labels)"


def criteria_result(
    cases: Cases,
    verdicts: Sequence[str],
    labels: str | None,
    encoder: TextEncoder | None,
    resamples: int,
    seed: int,
    chat: Any = None,
) -> dict[str, Any]:
    """Return the figures of the judges of criteria in some files of verdicts, certified if there are labels."""
    readings = read_checklists(verdicts, cases)
    given = read_labels(labels, cases) if labels else None
    certificate = plain(certify(cases, readings, given, encoder, resamples, seed, chat)) if given else None
    judges = {}
    for reading in readings:
        means = candidates(cases, reading)
        rates = error_rates(reading, given) if given is not None else None
        judges[reading.name] = {
            "candidates": means,
            "missed": missed(cases, reading, lambda case, criterion: criterion.tags),
            "topics": missed(cases, reading, _topic) if _has_topics(cases) else {},
            "certified": given is not None,
            "simulation": simulated(cases, reading, rates, seed) if rates else None,
        }
    return {"cases": len(cases), "responses": cases.responses, "judges": judges, "certificate": certificate}


def _has_topics(cases: Cases) -> bool:
    """Return whether a topic is that of several cases: as many topics as cases say nothing of a theme."""
    topics = [case.topic for case in cases.records if case.topic]
    return len(set(topics)) < len(topics)


def _topic(case: Case, criterion: CaseCriterion) -> tuple[str, ...]:
    return (case.topic,) if case.topic else ()


def _scored(cases: Cases, reading: Reading) -> dict[str, list[tuple[dict, list[float], Case, int]]]:
    """Return (checklist, points, case, length of the response) of every valid verdict, by model."""
    found = defaultdict(list)
    for (number, slot), verdicts in reading.verdicts.items():
        case = cases.records[number]
        for verdict in verdicts:
            if verdict.valid:
                points = [each.points for each in case.criteria]
                length = len(case.responses[slot].text)
                found[case.models[slot]].append((verdict.checklist, points, case, length))
    return found


def candidates(cases: Cases, reading: Reading) -> dict[str, dict[str, Any]]:
    """Return the means of every candidate by name: over responses whose criteria are all read, with the range over all."""
    found = {}
    for model, rows in sorted(_scored(cases, reading).items()):
        scores = [checklist_score(points, checklist["met"]) for checklist, points, _, _ in rows]
        whole = [None if None in checklist["met"] else score.score for score, (checklist, *_) in zip(scores, rows)]
        adjusted = [length_adjusted(score, length) for score, (*_, length) in zip(whole, rows)]
        found[model] = {
            "responses": len(rows),
            "clip_mean": mean_score(whole, "clip_mean"),
            "clip_cases": mean_score(whole, "clip_cases"),
            "unclipped": mean_score(whole, "unclipped"),
            "length_adjusted": mean_score(adjusted, "clip_mean"),
            "lowest": mean_score([score.lowest for score in scores]),
            "highest": mean_score([score.highest for score in scores]),
            "unread": sum(each is None for checklist, *_ in rows for each in checklist["met"]),
        }
    return found


def missed(
    cases: Cases, reading: Reading, themes: Callable[[Case, CaseCriterion], Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Return, for each theme, the share of criteria that are failed: not met with points above 0, or met with points below.

    Unread criteria do not count. The most failed theme comes first; each has the same share by candidate.
    """
    found: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for model, rows in _scored(cases, reading).items():
        for checklist, points, case, _ in rows:
            for met, worth, criterion in zip(checklist["met"], points, case.criteria):
                for theme in themes(case, criterion) if met is not None else ():
                    found[theme][model].append(met != (worth > 0))
    result = {
        theme: {
            "criteria": sum(map(len, by_model.values())),
            "failed": float(np.mean([each for own in by_model.values() for each in own])),
            "candidates": {model: float(np.mean(own)) for model, own in sorted(by_model.items())},
        }
        for theme, by_model in found.items()
    }
    return dict(sorted(result.items(), key=lambda each: -each[1]["failed"]))


def error_rates(reading: Reading, labels: Labels) -> tuple[float, float] | None:
    """Return how often the judge misses what physicians say is met, and says met where they do not; None without both."""
    (met, _), truth = reading.of(labels.pairs), labels.majority()
    known = ~np.isnan(met) & ~np.isnan(truth)
    rates = [met[known & (truth == kind)] for kind in (1, 0)]
    return (float(1 - rates[0].mean()), float(rates[1].mean())) if all(map(len, rates)) else None


def simulated(cases: Cases, reading: Reading, rates: tuple[float, float], seed: int) -> dict[str, Any]:
    """Simulate how far such errors move candidates' means, and how often they change the order of two.

    What the judge says is taken as the truth, and errors are drawn at its rates, independently for each criterion. Errors
    that go together, for instance all of one response, move means further.
    """
    rng, (misses, invents) = np.random.default_rng(seed), rates
    own: dict[str, np.ndarray] = {}
    truth = {}
    for model, rows in sorted(_scored(cases, reading).items()):
        drawn, given = [], []
        for checklist, points, _, _ in rows:
            possible = sum(each for each in points if each > 0)
            read = np.array([each is not None for each in checklist["met"]])
            if not possible or not read.all():
                continue
            met = np.array(checklist["met"], bool)
            wrong = rng.random((SIMULATIONS, len(met))) < np.where(met, misses, invents)
            drawn.append((met ^ wrong) @ np.array(points) / possible)
            given.append(met @ np.array(points) / possible)
        if drawn:
            own[model], truth[model] = np.mean(drawn, axis=0).clip(0, 1), float(np.clip(np.mean(given), 0, 1))
    pairs = [(a, b) for a, b in combinations(own, 2) if truth[a] != truth[b]]
    turned = [np.mean((own[a] - own[b]) * (truth[a] - truth[b]) <= 0) for a, b in pairs]
    return {
        "misses": misses,
        "invents": invents,
        "moved": {model: float(np.mean(found) - truth[model]) for model, found in own.items()},
        "spread": {model: float(np.std(found)) for model, found in own.items()},
        "pairs_turned": float(np.mean(turned)) if turned else None,
    }


def shown_cases(cases: Cases, verdicts: Sequence[Reading], most: int) -> list[dict[str, Any]]:
    """Return the first cases in the order of the file, each response with its criteria as each judge read them."""
    found = []
    for number in cases.file_order[:most]:
        case = cases.records[number]
        for slot, response in enumerate(case.responses):
            columns = {}
            for reading in verdicts:
                valid = [each for each in reading.verdicts.get((number, slot), ()) if each.valid]
                columns[reading.name] = valid[0].checklist["met"] if valid else [None] * len(case.criteria)
            rows = [
                {"criterion": each.criterion, "points": each.points, "met": [own[place] for own in columns.values()]}
                for place, each in enumerate(case.criteria)
            ]
            found.append({"id": case.id, "model": response.model, "text": response.text, "rows": rows})
    return found


def render_criteria(
    result: Mapping[str, Any], cases: Cases, verdicts: Sequence[str], settings: Mapping[str, Any], most: int
) -> dict[str, str]:
    """Return criteria.html and criteria.md."""
    shown = shown_cases(cases, read_checklists(verdicts, cases), most)
    return render_twins(
        "automedeval.meta_evaluation", "criteria", f"Criteria: {Path(cases.source).stem}", words=sentences(result),
        notes=[], figures=[], settings=settings, result=result, shown=shown,
    )  # fmt: skip


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return the results in sentences; every judge's score has its certificate, or the word uncertified."""
    found = []
    for name, own in result["judges"].items():
        means = ", ".join(f"{model} {_number(each[result['mean']])}" for model, each in own["candidates"].items())
        found.append(f"{name}: mean score {means} ({result['mean']}).")
        if result["certificate"] is None:
            found.append(f"{name} is {UNCERTIFIED}.")
            continue
        all_of_it = result["certificate"]["judges"][name]["all"]
        figures = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}
        told = ", ".join(f"{words} {_estimate(all_of_it[key])}" for key, words in figures.items())
        found.append(f"{name} beside physicians: {told}.")
    for name, each in (result["certificate"] or {}).get("physicians", {}).items():
        found.append(f"{name} beside the majority of the others: accuracy {_estimate(each['accuracy'])}.")
    return found


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _estimate(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return "–"
    return f"{found['value']:.3f} [{_number(found['low'])}, {_number(found['high'])}]"
