"""Certify a judge of criteria: compare what it says of each criterion with physicians' labels.

An item is one criterion of one response (`Cases.items`). Physicians' majority is strict: an item
without one counts in the pooled figures alone. Of several runs an item counts by the share that
calls it met: half right where half are. Criteria that no run read count as wrong in both accuracies
and are left out of the other figures, each of which has its own n; `read_rate` says how many there
are.
"""

from functools import partial

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People
from automedeval.meta_evaluation.verdicts.table import Judges
from automedeval.records import (
    CriterionLabel,
    JsonObject,
    RecordError,
    read_placed,
    without_repeats,
)
from automedeval.stats.agreement import midranks
from automedeval.stats.bootstrap import (
    SHARE,
    Statistic,
    divide,
    how_many,
    is_known,
    mean_along,
    mean_of,
    only,
)
from automedeval.stats.calibration_error import BINS, calibration_error
from automedeval.stats.degrees import kappa

Labels = dict[str, ndarray]  # annotator → float [items], 1 or 0, NaN where there is no label


def majority_of(labels: Labels, without: str | None = None) -> ndarray:
    """Return the strict majority of all annotators, or all but one: float [items], NaN where there is none."""
    votes = np.stack(list(labels.values()))
    share = mean_along(votes[[name != without for name in labels]], 0)
    return only(share > 0.5, is_known(share) & (share != 0.5))


def read_labels(path: str, cases: Cases, notes: list[str]) -> Labels:
    """Read labels; add to the notes.

    Raises:
        RecordError: no label on these cases; a model or a criterion that the case does not have; two labels of one annotator.
    """
    labels: Labels = {}
    on_cases = cases.known(read_placed(path, CriterionLabel), path, "label on", notes)
    for place, label in without_repeats(on_cases, lambda label: label.model):
        response = cases.locate(label.case_id, label.model, place)
        case, _ = cases.at(response)
        texts = [criterion.criterion for criterion in case.criteria]
        if label.criterion not in texts:
            missing = label.criterion[:80]
            raise RecordError(f"{place}: case {case.id!r} has no criterion {missing!r}")
        index = cases.first_item[response] + texts.index(label.criterion)
        labels.setdefault(label.annotator, np.full(len(cases.items), np.nan))[index] = label.met
    return labels


def people_of(labels: Labels, cases: Cases) -> People:
    """Return physicians' labels as one score of each response all of whose criteria have a strict majority.

    Raises:
        RecordError: there is no such response.
    """
    scores = cases.checklist_scores(majority_of(labels)).score
    if np.isnan(scores).all():
        raise RecordError(
            "no response has a strict majority of labels on each of its criteria, and positive "
            "points"
        )
    who = "1 physician"
    alone = People.alone
    if len(labels) > 1:
        who = f"the majority of {len(labels)} physicians"
        alone = "physicians stand beside each other by the criteria that they labelled"
    people = People(cases.panel, [who], ["criteria"], scores[None, :, None], alone=alone)
    labelled = np.unique(cases.response_of[labelled_items(labels)])
    if left_out := np.isnan(scores[labelled]).sum():
        people.notes.append(
            f"{left_out} labelled responses have no strict majority on each criterion, or no "
            "positive points, and count as not rated"
        )
    return people


# --- figures of one judge beside labels ------------------------------------------------------------------------------


def _macro_f1(tables: ndarray) -> ndarray:
    """Return the mean F1 of "met" and "not met", of those of the two that the judge or the label names, as in scikit-learn."""
    negative, false_alarms, missed, positive = tables.T
    wrong = false_alarms + missed
    f1 = [divide(2 * right, 2 * right + wrong) for right in (negative, positive)]
    return mean_along(np.array(f1), 0)


def _balanced_accuracy(tables: ndarray) -> ndarray:
    negative, false_alarms, missed, positive = tables.T
    return (divide(positive, positive + missed) + divide(negative, negative + false_alarms)) / 2


def auroc(chance: ndarray, truth: ndarray, case: ndarray) -> Statistic:
    """Return how often a met pair has a higher probability than one that is not met, a tie counting half."""
    defined = is_known(chance) & is_known(truth)
    truth = truth[defined]
    case = case[defined]
    levels = np.unique(chance[defined], return_inverse=True)[1]

    def share(counts: ndarray) -> ndarray:
        met = counts * truth
        pairs = met.sum(axis=1) * (counts - met).sum(axis=1)
        # Those below a met one are its rank less that among the met ones, which are in balance.
        return divide((met * midranks(counts, levels)).sum(axis=1) + pairs / 2, pairs)

    return Statistic(
        None, share, len(case), "not both kinds of label beside probabilities", cells=case
    )


def measures(
    cases: Cases, met: ndarray, chance: ndarray, labels: Labels, majority: ndarray
) -> JsonObject:
    """Return the figures of a judge as statistics.

    Args:
        met: float [items], the share of the runs that call each met, NaN where it is unread.
        chance: float [items], the mean probability of it, NaN where there is none.
    """
    case, judged, size = cases.case_of_item, is_known(majority), len(cases)
    is_sure = judged & is_known(chance)
    bins = np.clip((chance[is_sure] * BINS).astype(int), 0, BINS - 1)  # of equal width
    error = calibration_error(chance[is_sure], majority[is_sure], case[is_sure], size, bins)

    def table(truth: ndarray, said: ndarray) -> ndarray:
        """Return float [cases, 4]: true negatives, false positives, false negatives, true positives."""
        both = is_known(truth) & is_known(said)
        tables = np.zeros((size, 2, 2))
        shares = np.column_stack([1 - said, said])
        np.add.at(tables, (case[both], truth[both].astype(int)), shares[both])
        return tables.reshape(size, 4)

    is_read = is_known(met)
    by_majority = table(majority, met)
    unread_wrong = table(majority, np.where(is_read, met, 1 - majority))
    pooled = np.sum([table(labelled, met) for labelled in labels.values()], axis=0)
    n = how_many(judged & is_read)
    return {
        "accuracy": _accuracy(cases, met, majority),
        "balanced_accuracy": Statistic(unread_wrong, _balanced_accuracy, how_many(judged)),
        "cohen_kappa": Statistic(by_majority, partial(kappa, 1 - np.eye(2)), n),
        "macro_f1_pooled": Statistic(pooled, _macro_f1, round(pooled.sum())),
        "auroc": auroc(chance, majority, case),
        "calibration_error": error,
        "read_rate": mean_of(only(is_read, judged), case, size, bounds=SHARE),
    }


def certificate_of(cases: Cases, readings: Judges, labels: Labels) -> JsonObject:
    """Return the figures of every judge, and of each physician beside the majority of the others, as statistics."""
    majority = majority_of(labels)
    judges, physicians, judged = {}, {}, {}
    for reading in readings:
        # An empty answer meets nothing, which no judge was asked.
        chance = only(reading.per_item("met_probabilities"), ~cases.empty[cases.response_of])
        asked = reading.asked[cases.response_of]
        judges[reading.name] = measures(cases, reading.met, chance, labels, only(majority, asked))
        judged[f"accuracy of {reading.name} on these pairs"] = reading.met, asked
    for annotator, own in labels.items():
        truth = only(majority_of(labels, without=annotator), is_known(own))
        beside = {"accuracy": (own, is_known(own))} | judged
        physicians[annotator] = {
            name: _accuracy(cases, met, only(truth, asked)) for name, (met, asked) in beside.items()
        }
    has_majority = is_known(majority)
    return {
        "judges": judges,
        "physicians": physicians,
        "labels": {
            "pairs": how_many(labelled_items(labels)),
            "majority": how_many(has_majority),
            "met": float(np.nanmean(majority)) if has_majority.any() else None,
            "physicians": len(labels),
        },
    }


def labelled_items(labels: Labels) -> ndarray:
    """Return whether anybody labelled each item: bool [items]."""
    return np.any(is_known(list(labels.values())), axis=0)


def _accuracy(cases: Cases, met: ndarray, truth: ndarray) -> Statistic:
    """Return the accuracy over the items with a true answer; what is unread is wrong."""
    right = np.nan_to_num(1 - np.abs(met - truth))
    return mean_of(only(right, is_known(truth)), cases.case_of_item, len(cases), bounds=SHARE)
