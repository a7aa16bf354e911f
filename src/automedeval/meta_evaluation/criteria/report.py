"""Report what judges of criteria say: candidates' means, criteria that are missed, cases, and the certificate."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import audits_of, known_of_judge
from automedeval.meta_evaluation.agreement.verdicts import rows_of
from automedeval.meta_evaluation.criteria.checklists import (
    CriteriaVerdicts,
    Labels,
    certify,
    has_checklists,
    read_checklists,
    read_labels,
)
from automedeval.meta_evaluation.criteria.scores import scored
from automedeval.metrics.embedding import TextEncoder
from automedeval.records import Case, CaseCriterion, Response
from automedeval.reports.facts import Audit, facts_of
from automedeval.reports.page import Table, render_report
from automedeval.reports.text import number, span
from automedeval.stats.bootstrap import plain
from automedeval.stats.checklist import MEAN_RULES, checklist_score, length_adjusted, mean_score

__all__ = ["criteria_result", "has_checklists", "render_criteria"]

SIMULATIONS = 500
MEANS = (*MEAN_RULES, "length_adjusted")
UNCERTIFIED = "uncertified: it was not compared with physicians' labels of these cases (--criterion_labels)"


def criteria_result(
    cases: Cases,
    verdicts: Sequence[str],
    labels: str | None,
    encoder: TextEncoder | None,
    resamples: int,
    seed: int,
    audits: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the figures of the judges of criteria in some files of verdicts, certified if there are labels.

    Raises:
        RecordError: a fault of the verdicts, the labels or the audits (see `audits_of`).
    """
    readings = read_checklists(verdicts, cases)
    given = read_labels(labels, cases) if labels else None
    certificate = plain(certify(cases, readings, given, encoder, resamples, seed)) if given else None
    judges = {}
    for reading in readings:
        means = candidates(cases, reading)
        rates = error_rates(reading, given) if given is not None else None
        judges[reading.name] = {
            "candidates": means,
            "missed": missed(cases, reading, lambda case, criterion: criterion.tags),
            "topics": missed(cases, reading, _topic) if _has_topics(cases) else {},
            "certified": given is not None and not np.isnan(reading.of(given.pairs)[0]).all(),
            "simulation": simulated(cases, reading, rates, seed) if rates else None,
        }
    result = {"cases": len(cases), "responses": cases.responses, "judges": judges, "certificate": certificate}
    rows = rows_of([scored(cases, reading) for reading in readings])
    audited = audits_of(audits, rows)
    for reading, row in zip(readings, rows):
        more: dict[str, Any] = {"audit": Audit(**audited[row.name])} if row.name in audited else {}
        known = known_of_judge(cases, row, agreement=[_credit(result, row.name)], **read_shares(cases, reading), **more)
        judges[row.name]["facts"] = [list(fact) for fact in facts_of(known)]
    return result


def read_shares(cases: Cases, reading: CriteriaVerdicts) -> dict[str, Any]:
    """Return `valid` and `unread` of `Known`: a verdict with an unread criterion is valid, and has no score."""
    valid = [verdict.valid for verdicts in reading.verdicts.values() for verdict in verdicts]
    unread = {
        model: sum(each.met.count(None) == len(each.met) for each in own)
        for model, own in _answers(cases, reading).items()
    }
    return {"valid": sum(valid) / len(valid), "unread": unread}


def _credit(result: Mapping[str, Any], name: str) -> str:
    """Say how a judge agrees with physicians' labels, or that it is not certified by any."""
    if not result["judges"][name]["certified"]:
        return f"{name} is {UNCERTIFIED}."
    all_of_it = result["certificate"]["judges"][name]["all"]
    figures = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auroc": "AUROC"}
    told = ", ".join(f"{words} {span(all_of_it[key], 3)}" for key, words in figures.items())
    return f"Beside physicians' labels it has {told}."


def _has_topics(cases: Cases) -> bool:
    """Return whether a topic is that of several cases: as many topics as cases say nothing of a theme."""
    topics = [case.topic for case in cases.records if case.topic]
    return len(set(topics)) < len(topics)


def _topic(case: Case, criterion: CaseCriterion) -> tuple[str, ...]:
    return (case.topic,) if case.topic else ()


@dataclass(frozen=True)
class _Answer:
    """What a judge says of one response: in what share of its runs each criterion is met, None where it is unread."""

    case: Case
    response: Response
    met: list[float | None]

    @property
    def points(self) -> list[float]:
        return [each.points for each in self.case.criteria]

    @property
    def whole(self) -> bool:
        return None not in self.met


def _answers(cases: Cases, reading: CriteriaVerdicts) -> dict[str, list[_Answer]]:
    """Return every response that the judge was shown, by model; one of which it read nothing is among them."""
    found = defaultdict(list)
    for place, slot in reading.verdicts:
        case = cases.records[place]
        answer = _Answer(case, case.responses[slot], reading.shares(place, slot))
        found[case.models[slot]].append(answer)
    return dict(sorted(found.items()))


def candidates(cases: Cases, reading: CriteriaVerdicts) -> dict[str, dict[str, Any]]:
    """Return the means of every candidate by name: over responses whose criteria are all read, with the range over all."""
    found = {}
    for model, answers in _answers(cases, reading).items():
        scores = [checklist_score(each.points, each.met) for each in answers]
        lowest, highest = (_means([score[end] for score in scores], answers) for end in (1, 2))
        found[model] = {
            "responses": len(answers),
            **_means([score.score if each.whole else None for score, each in zip(scores, answers)], answers),
            "lowest": lowest["clip_mean"],
            "highest": highest["clip_mean"],
            "possible": {name: [lowest[name], highest[name]] for name in MEANS},
            "read": sum(each.whole for each in answers),
            "unread": sum(each.met.count(None) for each in answers),
            "empty": sum(each.response.is_empty for each in answers),
        }
    return found


def _means(scores: Sequence[float | None], answers: Sequence[_Answer]) -> dict[str, float | None]:
    adjusted = [length_adjusted(score, len(each.response.text)) for score, each in zip(scores, answers)]
    return {rule: mean_score(scores, rule) for rule in MEAN_RULES} | {"length_adjusted": mean_score(adjusted)}


def missed(
    cases: Cases, reading: CriteriaVerdicts, themes: Callable[[Case, CaseCriterion], Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Return, for each theme, the share of criteria that are failed: not met with points above 0, or met with points below.

    Unread criteria do not count. The most failed theme comes first; each has the same share by candidate.
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for model, answers in _answers(cases, reading).items():
        for each in answers:
            for met, criterion in zip(each.met, each.case.criteria):
                if met is None:
                    continue
                for theme in themes(each.case, criterion):
                    found[theme][model].append(1 - met if criterion.points > 0 else met)
    result: dict[str, dict[str, Any]] = {
        theme: {
            "criteria": sum(map(len, by_model.values())),
            "failed": float(np.mean([each for own in by_model.values() for each in own])),
            "candidates": {model: float(np.mean(own)) for model, own in sorted(by_model.items())},
        }
        for theme, by_model in found.items()
    }
    return dict(sorted(result.items(), key=lambda each: -each[1]["failed"]))


def error_rates(reading: CriteriaVerdicts, labels: Labels) -> tuple[float, float] | None:
    """Return how often the judge misses what physicians say is met, and says met where they do not; None without both."""
    (met, _), truth = reading.of(labels.pairs), labels.majority()
    known = ~np.isnan(met) & ~np.isnan(truth)
    rates = [met[known & (truth == kind)] for kind in (1, 0)]
    return (float(1 - rates[0].mean()), float(rates[1].mean())) if all(map(len, rates)) else None


def simulated(cases: Cases, reading: CriteriaVerdicts, rates: tuple[float, float], seed: int) -> dict[str, Any]:
    """Simulate how far such errors move candidates' means, and how often they change the order of two.

    What most runs of the judge say is taken as the truth, and errors are drawn at its rates, independently for each criterion.
    Errors that go together, for instance all of one response, move means further.
    """
    rng, (misses, invents) = np.random.default_rng(seed), rates
    own: dict[str, np.ndarray] = {}
    truth = {}
    for model, answers in _answers(cases, reading).items():
        drawn, given = [], []
        for each in answers:
            possible = sum(worth for worth in each.points if worth > 0)
            if not possible or None in each.met or 0.5 in each.met:
                continue
            met, points = np.array(each.met) > 0.5, np.array(each.points)
            wrong = rng.random((SIMULATIONS, len(met))) < np.where(met, misses, invents)
            wrong &= not each.response.is_empty  # of which every judge says the same
            drawn.append((met ^ wrong) @ points / possible)
            given.append(met @ points / possible)
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


def shown_cases(cases: Cases, verdicts: Sequence[CriteriaVerdicts], most: int) -> list[dict[str, Any]]:
    """Return the first cases in the order of the file, each response with its criteria as each judge read them."""
    found = []
    for place in cases.file_order[:most]:
        case = cases.records[place]
        for slot, response in enumerate(case.responses):
            columns = {reading.name: reading.shares(place, slot) for reading in verdicts}
            rows = [
                {
                    "criterion": each.criterion,
                    "points": each.points,
                    "met": [shares[index] for shares in columns.values()],
                }
                for index, each in enumerate(case.criteria)
            ]
            found.append({"id": case.id, "model": response.model, "text": response.text, "rows": rows})
    return found


def render_criteria(
    result: Mapping[str, Any], cases: Cases, verdicts: Sequence[str], settings: Mapping[str, Any], most: int
) -> dict[str, str]:
    """Return {"criteria.html": text, "criteria.md": text}."""
    shown = shown_cases(cases, read_checklists(verdicts, cases), most)
    return render_report(
        "automedeval.meta_evaluation", "criteria", f"Criteria: {Path(cases.source).stem}", words=sentences(result),
        notes=[], figures=[], settings=settings, main_table=_mean_scores(result), result=result, shown=shown,
    )  # fmt: skip


def _mean_scores(result: Mapping[str, Any]) -> Table:
    rows = [
        (model, judge, each["responses"], each["read"], number(each[result["mean"]]))
        for judge, record in result["judges"].items()
        for model, each in record["candidates"].items()
    ]
    return ("candidate", "judge", "responses", "wholly read", f"mean score ({result['mean']})"), rows


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return the results in sentences: every judge's scores, and what is known of it, its certificate first."""
    found = []
    for name, own in result["judges"].items():
        means = ", ".join(
            f"{model} {number(each[result['mean']])}{_range(each, result['mean'])}"
            for model, each in own["candidates"].items()
        )
        found.append(f"{name}: mean score {means} ({result['mean']}).")
        of = f" ({name})" if len(result["judges"]) > 1 else ""
        found += [f"{fact.rstrip('?')}{of}: {text}" for fact, text in own["facts"]]
    for name, each in (result["certificate"] or {}).get("physicians", {}).items():
        found.append(f"{name} beside the majority of the others: accuracy {span(each['accuracy'], 3)}.")
    return found


def _range(each: Mapping[str, Any], mean: str) -> str:
    """Return over how many responses a mean is, and what it can be over all, where some are not wholly read."""
    if each["read"] == each["responses"]:
        return ""
    between = " to ".join(map(number, each["possible"][mean]))
    return f" (of {each['read']} of {each['responses']} responses; of all {between})"
