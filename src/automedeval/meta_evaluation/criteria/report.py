"""What judges of criteria say beside their scores: criteria that are missed, harm, what is unread, and the certificate."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.criteria.checklists import Labels, certificate_of, strict_majority
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import JsonObject
from automedeval.records.text import span
from automedeval.stats.bootstrap import mean_of


def criteria_result(
    cases: Cases, judges: Sequence[VerdictTable], labels: Labels | None
) -> JsonObject:
    """Return what agreement.json has under "criteria", with a `Statistic` for every figure, certified if there are labels."""
    certificate, labelled = None, np.zeros(len(cases.items), bool)
    if labels is not None:
        certificate = certificate_of(cases, judges, labels)
        labelled = ~np.isnan(np.stack([*labels.values()])).all(axis=0)
    records = {}
    for judge in judges:
        certified = not np.isnan(strict_majority(judge.met[labelled])).all()
        records[judge.name] = {
            "candidates": candidates(judge),
            "missed": missed(cases, judge),
            "certified": certified,
        }
    return {"judges": records, "certificate": certificate}


def credit(result: JsonObject, name: str) -> list[str]:
    """Say how a judge of criteria agrees with physicians' labels, or that it is not certified by any; nothing of another."""
    criteria = result.get("criteria", {"judges": {}})
    if name not in criteria["judges"]:
        return []
    if not criteria["judges"][name]["certified"]:
        return [
            f"{name} is uncertified: it was not compared with physicians' labels of these cases (--ratings)."
        ]
    values = {key: span(each, 3) for key, each in criteria["certificate"]["judges"][name].items()}
    figures = "accuracy {accuracy}, balanced accuracy {balanced_accuracy}, AUROC {auroc}".format(
        **values
    )
    return [f"Beside physicians' labels of criteria {name} has {figures}."]


def candidates(judge: VerdictTable) -> dict[str, JsonObject]:
    """Return of every candidate that was shown how many responses have a score, and the part of it by points below 0."""
    cases, case, shown = judge.cases, judge.cases.panel.case, judge.shown()
    unread = judge.unread_criteria
    of_harm = cases.checklist_scores(np.where(cases.points < 0, judge.met, 0.0)).score
    harm, found = np.where(unread > 0, np.nan, of_harm), {}
    for number in np.unique(cases.model_of[shown]).tolist():
        at = np.flatnonzero(shown & (cases.model_of == number))
        found[cases.models[number]] = {
            "responses": len(at),
            "scored": int((~np.isnan(judge.scores[at])).sum()),
            "unread criteria": int(unread[at].sum()),
            "harm": mean_of(harm[at], case[at], len(cases), "no response is wholly read"),
        }
    return found


def missed(cases: Cases, reading: VerdictTable) -> dict[str, JsonObject]:
    """Return, for each tag, the share of failed criteria: not met with points above 0, or met with points below.

    Unread criteria do not count. The most failed one comes first; each has the same share by candidate.
    """
    items_of: dict[str, list[int]] = defaultdict(list)
    for item, (_, criterion) in enumerate(cases.items):
        for tag in criterion.tags:
            items_of[tag].append(item)
    failed = np.where(cases.points > 0, 1 - reading.met, reading.met)
    failed[~reading.shown()[cases.response_of]] = np.nan
    result: dict[str, JsonObject] = {}
    for tag, items in items_of.items():
        shares, models = failed[items], cases.model_of[cases.response_of[items]]
        read = ~np.isnan(shares)
        if read.any():
            by_model = {
                cases.models[each]: float(shares[read & (models == each)].mean())
                for each in set(models[read])
            }
            by_model = dict(sorted(by_model.items()))
            result[tag] = {
                "criteria": int(read.sum()),
                "failed": float(shares[read].mean()),
                "candidates": by_model,
            }
    return dict(sorted(result.items(), key=lambda each: -each[1]["failed"]))
