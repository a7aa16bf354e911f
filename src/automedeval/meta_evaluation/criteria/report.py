"""What judges of criteria say beside their scores: criteria that are missed, harm, what is unread, and the certificate."""

from collections import defaultdict
from itertools import chain
from statistics import fmean

import numpy as np

from automedeval.meta_evaluation.criteria.checklists import (
    Labels,
    certificate_of,
    labelled_items,
)
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import Judges, VerdictTable
from automedeval.records import JsonObject
from automedeval.records.text import span
from automedeval.stats.bootstrap import how_many, is_known, mean_of


def criteria_result(cases: Cases, judges: Judges, labels: Labels | None) -> JsonObject:
    """Return what agreement.json has under "criteria", with a `Statistic` for every figure, certified if there are labels."""
    certificate = None
    labelled = np.zeros(len(cases.items), bool)
    if labels is not None:
        certificate = certificate_of(cases, judges, labels)
        labelled = labelled_items(labels)
    records = {}
    for judge in judges:
        records[judge.name] = {
            "candidates": candidates(judge),
            "missed": missed(judge),
            "certified": bool(is_known(judge.met[labelled]).any()),
        }
    return {"judges": records, "certificate": certificate}


def credit(result: JsonObject, name: str) -> list[str]:
    """Say how a judge of criteria agrees with physicians' labels, or that it is not certified by any; nothing of another."""
    criteria = result.get("criteria", {"judges": {}})
    if name not in criteria["judges"]:
        return []
    if not criteria["judges"][name]["certified"]:
        return [
            f"{name} is uncertified: it was not compared with physicians' labels of these cases "
            "(--ratings)."
        ]
    certificate = criteria["certificate"]["judges"][name]
    accuracy, balanced, auroc = (
        span(certificate[measure], 3) for measure in ("accuracy", "balanced_accuracy", "auroc")
    )
    return [
        f"Beside physicians' labels of criteria {name} has accuracy {accuracy}, balanced accuracy "
        f"{balanced}, AUROC {auroc}."
    ]


def candidates(judge: VerdictTable) -> JsonObject:
    """Return of every candidate that was shown how many responses have a score, and the part of it by points below 0."""
    cases = judge.cases
    case = cases.panel.case
    unread = judge.unread_criteria
    harm = cases.checklist_scores(judge.met * (cases.points < 0)).score
    records = {}
    for model, shown in cases.by_model(judge.shown()):
        records[model] = {
            "responses": len(shown),
            "scored": how_many(is_known(judge.scores[shown])),
            "unread criteria": how_many(unread[shown]),
            "harm": mean_of(harm[shown], case[shown], len(cases), "no response is wholly read"),
        }
    return records


def missed(reading: VerdictTable) -> JsonObject:
    """Return, for each tag, the share of failed criteria: not met with points above 0, or met with points below.

    Unread criteria do not count. The most failed one comes first; each has the same share by candidate.
    """
    cases = reading.cases
    failed = np.where(cases.points > 0, 1 - reading.met, reading.met)
    is_read = is_known(failed) & reading.shown()[cases.response_of]
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in np.flatnonzero(is_read).tolist():
        response, criterion = cases.items[item]
        model = cases.at(response)[1].model
        for tag in criterion.tags:
            shares[tag][model].append(failed[item])
    result: JsonObject = {}
    for tag, by_model in shares.items():
        of_all = [*chain(*by_model.values())]
        result[tag] = {
            "criteria": len(of_all),
            "failed": fmean(of_all),
            "candidates": {model: fmean(by_model[model]) for model in sorted(by_model)},
        }
    return dict(sorted(result.items(), key=lambda of_tag: -of_tag[1]["failed"]))
