"""Certify a judge of criteria: compare what it says of each criterion with physicians' labels.

An item is one criterion of one response (`Cases.items`). Physicians' majority is strict: an item without one counts in the
pooled figures alone. Unread criteria count as wrong in `accuracy` and are left out of the other figures; `read_rate` says how
many there are.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import (
    CriterionLabel,
    JsonObject,
    RecordError,
    read_placed,
    without_repeats,
)
from automedeval.stats.bootstrap import Statistic, divide, mean_of
from automedeval.stats.calibration_error import BINS, calibration_error
from automedeval.stats.degrees import degree_tables, kappa

Labels = dict[str, np.ndarray]  # annotator → float [items], 1 or 0, NaN where there is no label


def strict_majority(share: np.ndarray) -> np.ndarray:
    """Return 1 where more than half say that an item is met, 0 where fewer do, NaN where neither do."""
    return np.where(np.isnan(share) | (share == 0.5), np.nan, (share > 0.5).astype(float))


def majority_of(labels: Labels, without: str | None = None) -> np.ndarray:
    """Return the strict majority of all annotators, or all but one: float [items], NaN where there is none."""
    every = next(iter(labels.values()))
    votes = np.stack(
        [np.full_like(every, np.nan), *(met for name, met in labels.items() if name != without)]
    )
    return strict_majority(divide(np.nansum(votes, axis=0), (~np.isnan(votes)).sum(axis=0)))


def read_labels(path: str, cases: Cases) -> tuple[Labels, list[str]]:
    """Read labels; return them, and notes.

    Raises:
        RecordError: no label on these cases; a model or a criterion that the case does not have; two labels of one annotator.
    """
    labels: Labels = {}
    notes: list[str] = []
    on_cases = cases.known(read_placed(path, CriterionLabel), path, "label on", notes)
    for place, label in without_repeats(on_cases, lambda each: each.model):
        response = cases.locate(label.case_id, label.model, place)
        case, _ = cases.at(response)
        texts = [each.criterion for each in case.criteria]
        if label.criterion not in texts:
            raise RecordError(
                f"{place}: case {case.id!r} has no criterion {label.criterion[:80]!r}"
            )
        item = cases.first_item[response] + texts.index(label.criterion)
        labels.setdefault(label.annotator, np.full(len(cases.items), np.nan))[item] = label.met
    return labels, notes


def people_of(labels: Labels, cases: Cases) -> People:
    """Return physicians' labels as one score of each response all of whose criteria have a strict majority.

    Raises:
        RecordError: there is no such response.
    """
    majority = majority_of(labels)
    missing = np.bincount(cases.response_of, np.isnan(majority), minlength=cases.responses)
    scores = np.where(missing > 0, np.nan, cases.checklist_scores(majority).score)
    if np.isnan(scores).all():
        raise RecordError(
            "no response has a strict majority of labels on each of its criteria, and positive points"
        )
    parts = int(((missing > 0) & (missing < np.diff(cases.first_item))).sum())
    notes = (
        [f"{parts} responses have labels on some of their criteria alone, and count as not rated"]
        if parts
        else []
    )
    return People(
        cases.panel,
        ["majority of the physicians"],
        {"criteria": scores[:, None]},
        True,
        notes=notes,
    )


# --- figures of one judge beside labels ------------------------------------------------------------------------------


def _table(met: np.ndarray, truth: np.ndarray, case: np.ndarray, cases: int) -> np.ndarray:
    """Return float [cases, 4]: true negatives, false positives, false negatives and true positives of each case."""
    return degree_tables(truth, met, case, cases, 2).reshape(cases, 4)


def _macro_f1(s: np.ndarray) -> np.ndarray:
    """Return the mean F1 of "met" and "not met", of those of the two that the judge or the label names, as in scikit-learn."""
    wrong = s[:, 1] + s[:, 2]
    both = np.array([divide(2 * right, 2 * right + wrong) for right in (s[:, 0], s[:, 3])])
    return divide(np.nansum(both, axis=0), (~np.isnan(both)).sum(axis=0))


OF_TABLE: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of sums of `_table`
    "balanced_accuracy": lambda s: (
        (divide(s[:, 3], s[:, 3] + s[:, 2]) + divide(s[:, 0], s[:, 0] + s[:, 1])) / 2
    ),
    "cohen_kappa": partial(kappa, 1 - np.eye(2)),
}


def auroc(chance: np.ndarray, truth: np.ndarray, case: np.ndarray) -> Statistic:
    """Return how often a met pair has a higher probability than one that is not met, a tie counting half."""
    defined = ~np.isnan(chance) & ~np.isnan(truth)
    order = np.flatnonzero(defined)[np.argsort(chance[defined], kind="stable")]
    truth, starts = truth[order], np.unique(chance[order], return_index=True)[1]

    def of(counts: np.ndarray) -> np.ndarray:
        if not len(starts):
            return np.full(len(counts), np.nan)
        positive, negative = (
            np.add.reduceat(counts * is_kind, starts, axis=1) for is_kind in (truth, 1 - truth)
        )
        below = negative.cumsum(axis=1) - negative / 2
        return divide((positive * below).sum(axis=1), positive.sum(axis=1) * negative.sum(axis=1))

    return Statistic(None, of, len(order), "only one kind of label", None, case[order])


def measures(
    cases: Cases, met: np.ndarray, chance: np.ndarray, labels: Labels, majority: np.ndarray
) -> JsonObject:
    """Return the figures of a judge as statistics; `met` and `chance` are float [items], NaN where a criterion is unread."""
    case, judged, size = cases.panel.case[cases.response_of], ~np.isnan(majority), len(cases)
    sure = judged & ~np.isnan(chance)
    bins = np.clip((chance[sure] * BINS).astype(int), 0, BINS - 1)  # of equal width
    table = _table(met, majority, case, size)
    pooled = np.sum([_table(met, labelled, case, size) for labelled in labels.values()], axis=0)
    return {
        "accuracy": mean_of(
            np.where(judged, met == majority, np.nan), case, size, bounds=(0.0, 1.0)
        ),
        **{name: Statistic(table, of, int(table.sum())) for name, of in OF_TABLE.items()},
        "macro_f1_pooled": Statistic(pooled, _macro_f1, int(pooled.sum())),
        "auroc": auroc(chance, majority, case),
        "calibration_error": calibration_error(
            chance[sure], majority[sure], case[sure], size, bins
        ),
        "read_rate": mean_of(
            np.where(judged, ~np.isnan(met), np.nan), case, size, bounds=(0.0, 1.0)
        ),
    }


def certificate_of(cases: Cases, readings: Sequence[VerdictTable], labels: Labels) -> JsonObject:
    """Return the figures of every judge, and of each physician beside the majority of the others, as statistics."""
    majority = majority_of(labels)
    labelled = ~np.isnan(np.stack([*labels.values()])).all(axis=0)
    judged = {reading.name: strict_majority(reading.met) for reading in readings}
    tree: JsonObject = {"judges": {}, "physicians": {}}
    for reading in readings:
        met, chance = judged[reading.name], reading.per_item("met_probabilities")
        asked = np.where(reading.asked[cases.response_of], majority, np.nan)
        tree["judges"][reading.name] = measures(cases, met, chance, labels, asked)
    for annotator, met_by in labels.items():
        truth = np.where(np.isnan(met_by), np.nan, majority_of(labels, without=annotator))
        said = {"accuracy": met_by} | {
            f"accuracy of {name} on these pairs": met for name, met in judged.items()
        }
        tree["physicians"][annotator] = {
            name: _accuracy(cases, met, truth) for name, met in said.items()
        }
    sure = int((~np.isnan(majority)).sum())
    counts = {
        "pairs": int(labelled.sum()),
        "majority": sure,
        "met": float(np.nanmean(majority)) if sure else None,
    }
    return tree | {"labels": counts | {"physicians": len(labels)}}


def _accuracy(cases: Cases, met: np.ndarray, truth: np.ndarray) -> Statistic:
    """Return the accuracy over the items that both have said something of."""
    both = np.where(np.isnan(met) | np.isnan(truth), np.nan, met == truth)
    return mean_of(both, cases.panel.case[cases.response_of], len(cases), bounds=(0.0, 1.0))
