"""Certify a judge of criteria: compare what it says of each criterion with physicians' labels.

A pair is one criterion and one response. Physicians' majority is strict: a pair without one counts in the pooled figures alone.
Unread criteria count as wrong in `accuracy` and are left out of the other figures; `read_rate` says how many there are.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from rapidfuzz.distance import LCSseq

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.metrics.embedding import TextEncoder, readable, sentences
from automedeval.metrics.lexical import words
from automedeval.records import CriterionLabel, RecordError, read_placed
from automedeval.stats.bootstrap import Statistic, difference, divide, estimate, ratio
from automedeval.stats.calibration_error import BINS, calibration_error
from automedeval.stats.degrees import degree_tables, kappa

CATEGORY = "category:"  # how a tag names the category of a criterion
TRIVIAL = ("words covered", "ROUGE-L recall", "embedding cosine", "words covered + embedding cosine")


@dataclass(frozen=True)
class Labels:
    """Physicians' labels, one entry for each pair, in the order of the file."""

    pairs: list[tuple[int, int, int]]  # (number of the case, index of the response, index of the criterion)
    met: Mapping[str, np.ndarray]  # annotator → float [pairs], 1 or 0, NaN where there is no label
    others: int  # labels on cases that are not read

    @property
    def case(self) -> np.ndarray:
        return np.array([pair[0] for pair in self.pairs], int)

    def majority(self, without: str | None = None) -> np.ndarray:
        """Return the strict majority of all annotators, or all but one: float [pairs], NaN where there is none."""
        votes = np.array([met for name, met in self.met.items() if name != without]).reshape(-1, len(self.pairs))
        share = divide(np.nansum(votes, axis=0), (~np.isnan(votes)).sum(axis=0))
        return np.where(np.isnan(share) | (share == 0.5), np.nan, (share > 0.5).astype(float))


def read_labels(path: str, cases: Cases) -> Labels:
    """Read labels; those on other cases are counted.

    Raises:
        RecordError: no label on these cases; a model or a criterion that the case does not have; two labels of one annotator.
    """
    met: dict[str, dict[tuple[int, int, int], float]] = defaultdict(dict)
    pairs: dict[tuple[int, int, int], None] = {}
    others = 0
    for place, label in read_placed(path, CriterionLabel):
        if (number := cases.index.get(label.case_id)) is None:
            others += 1
            continue
        case = cases.records[number]
        texts = [each.criterion for each in case.criteria]
        for kind, name, names in (("response of", label.model, case.models), ("criterion", label.criterion, texts)):
            if name not in names:
                raise RecordError(f"{place}: case {case.id!r} has no {kind} {name[:80]!r}")
        pair = (number, case.models.index(label.model), texts.index(label.criterion))
        if pair in met[label.annotator]:
            raise RecordError(f"{place}: {label.annotator!r} labelled this criterion of this response before")
        pairs[pair] = None
        met[label.annotator][pair] = float(label.met)
    if not pairs:
        raise RecordError(f"{path}: no label on these cases")
    columns = {name: np.array([labels.get(pair, np.nan) for pair in pairs]) for name, labels in met.items()}
    return Labels(list(pairs), columns, others)


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
    "precision": lambda s: divide(s[:, 3], s[:, 3] + s[:, 1]),
    "recall": lambda s: divide(s[:, 3], s[:, 3] + s[:, 2]),
    "balanced_accuracy": lambda s: (divide(s[:, 3], s[:, 3] + s[:, 2]) + divide(s[:, 0], s[:, 0] + s[:, 1])) / 2,
    "cohen_kappa": partial(kappa, 1 - np.eye(2)),
    "macro_f1_majority": _macro_f1,
}


def auroc(chance: np.ndarray, truth: np.ndarray, case: np.ndarray) -> Statistic:
    """Return how often a met pair has a higher probability than one that is not met, a tie counting half."""
    defined = ~np.isnan(chance) & ~np.isnan(truth)
    order = np.flatnonzero(defined)[np.argsort(chance[defined], kind="stable")]
    truth, starts = truth[order], np.unique(chance[order], return_index=True)[1]

    def of(counts: np.ndarray) -> np.ndarray:
        if not len(starts):
            return np.full(len(counts), np.nan)
        positive, negative = (np.add.reduceat(counts * is_kind, starts, axis=1) for is_kind in (truth, 1 - truth))
        below = negative.cumsum(axis=1) - negative / 2
        return divide((positive * below).sum(axis=1), positive.sum(axis=1) * negative.sum(axis=1))

    return Statistic(None, of, len(order), "only one kind of label", None, case[order])


def measures(met: np.ndarray, chance: np.ndarray, labels: Labels, majority: np.ndarray, cases: int) -> dict[str, Any]:
    """Return the figures of a judge as statistics; `met` and `chance` are float [pairs], NaN where a criterion is unread."""
    case, judged = labels.case, ~np.isnan(majority)
    sure = judged & ~np.isnan(chance)
    bins = np.clip((chance[sure] * BINS).astype(int), 0, BINS - 1)  # of equal width
    count = partial(np.bincount, case, minlength=cases)
    table = _table(met, majority, case, cases)
    pooled = np.sum([_table(met, labelled, case, cases) for labelled in labels.met.values()], axis=0)
    return {
        "accuracy": ratio(count(judged & (met == majority)), count(judged), reason="no value"),
        **{name: Statistic(table, of, int(table.sum())) for name, of in OF_TABLE.items()},
        "macro_f1_pooled": Statistic(pooled, _macro_f1, int(pooled.sum())),
        "auroc": auroc(chance, majority, case),
        "calibration_error": calibration_error(chance[sure], majority[sure], case[sure], cases, bins),
        "read_rate": ratio(count(judged & ~np.isnan(met)), count(judged), reason="no value"),
    }


def trivial(cases: Cases, labels: Labels, encoder: TextEncoder | None) -> dict[str, np.ndarray]:
    """Return what needs no judge: float [pairs] of each of `TRIVIAL`, of the first two alone without an encoder."""
    texts = []
    for case, slot, criterion in labels.pairs:
        record = cases.records[case]
        texts.append((record.criteria[criterion].criterion, record.responses[slot].text))
    word_lists = [(words(criterion), words(response)) for criterion, response in texts]
    covered = [np.mean([word in set(said) for word in set(asked)]) if asked else np.nan for asked, said in word_lists]
    recall = [LCSseq.similarity(asked, said) / len(asked) if asked else np.nan for asked, said in word_lists]
    scores = dict(zip(TRIVIAL, (np.array(covered), np.array(recall))))
    if encoder is None:
        return scores
    cut = {response: sentences(response) for _, response in texts}
    every = list(
        dict.fromkeys([*(criterion for criterion, _ in texts), *(each for some in cut.values() for each in some)])
    )
    vectors = dict(zip(every, encoder.encode(list(map(readable, every)))))
    nearest = [max((float(vectors[a] @ vectors[each]) for each in cut[b]), default=np.nan) for a, b in texts]
    cosine = np.array(nearest)
    return scores | dict(zip(TRIVIAL[2:], (cosine, cosine + scores[TRIVIAL[0]])))


def category(tags: Sequence[str]) -> str | None:
    """Return the category of a criterion: that of its first tag that names one, else its first tag, else None."""
    return (
        next((tag for tag in tags if tag.startswith(CATEGORY)), tags[0] if tags else "").removeprefix(CATEGORY) or None
    )


def groups(cases: Cases, labels: Labels) -> dict[str, np.ndarray]:
    """Return the categories of the criteria, or else their tags, as masks of the pairs."""
    tags = [cases.records[case].criteria[criterion].tags for case, _, criterion in labels.pairs]
    named = {tag for tags_of_pair in tags for tag in tags_of_pair}
    categories = {tag for tag in named if tag.startswith(CATEGORY)} or named
    return {
        tag.removeprefix(CATEGORY): np.array([tag in tags_of_pair for tags_of_pair in tags])
        for tag in sorted(categories)
    }


def certificate_of(
    cases: Cases, readings: Sequence[VerdictTable], labels: Labels, encoder: TextEncoder | None, resamples: int
) -> dict[str, Any]:
    """Return the figures of every judge, of each physician against the others, and of what needs no judge, with intervals."""
    majority, count = labels.majority(), len(cases)
    judged = {reading.name: reading.met(labels.pairs) for reading in readings}
    tree: dict[str, Any] = {"judges": {}, "physicians": {}, "trivial": {}}
    for name, (met, chance) in judged.items():
        figures = {"all": measures(met, chance, labels, majority, count), "categories": {}, "physicians": {}}
        for tag, mask in groups(cases, labels).items():
            some = replace(labels, met={name: np.where(mask, each, np.nan) for name, each in labels.met.items()})
            figures["categories"][tag] = measures(met, chance, some, np.where(mask, majority, np.nan), count)
        for annotator, met_by in labels.met.items():
            figures["physicians"][annotator] = _agreement(met, met_by, labels, count)
        tree["judges"][name] = figures
    for annotator, met_by in labels.met.items():
        truth = labels.majority(without=annotator)
        tree["physicians"][annotator] = _agreement(met_by, truth, labels, count)
        for name, (met, _) in judged.items():
            same = np.where(np.isnan(met_by), np.nan, met)
            tree["physicians"][annotator][f"accuracy of {name} on these pairs"] = _agreement(
                same, truth, labels, count
            )["accuracy"]
    for name, values in trivial(cases, labels, encoder).items():
        tree["trivial"][name] = auroc(values, majority, labels.case)
    estimated = estimate(tree, count, resamples)
    for figures in estimated["judges"].values():
        figures["above_trivial"] = {
            name: difference(figures["all"]["auroc"], each, None) for name, each in estimated["trivial"].items()
        }
    sure = majority[~np.isnan(majority)]
    pairs = {"pairs": len(labels.pairs), "majority": len(sure), "met": float(sure.mean()) if len(sure) else None}
    return estimated | {"labels": pairs | {"physicians": len(labels.met), "of other cases": labels.others}}


def _agreement(met: np.ndarray, truth: np.ndarray, labels: Labels, cases: int) -> dict[str, Statistic]:
    """Return accuracy, kappa and macro-F1 over the pairs that both have said something of."""
    table = _table(met, truth, labels.case, cases)
    of: dict[str, Callable] = {"accuracy": lambda s: divide(s[:, 0] + s[:, 3], s.sum(axis=1))}
    of |= {"cohen_kappa": OF_TABLE["cohen_kappa"], "macro_f1_pooled": _macro_f1}
    return {name: Statistic(table, each, int(table.sum())) for name, each in of.items()}
