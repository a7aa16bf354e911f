"""Combine several judges into one.

There is one method for each kind of verdict:

- Scores are stacked (Wolpert 1992; with weights of 0 or more, Breiman 1996): a ridge regression of people's scores on the
  deviation of each judge's score from its mean over the case, and on that mean.
- Relations and choices are combined by the model of Dawid and Skene (1979): each judge has a confusion matrix, learned from
  the pairs that people rated, or fitted by EM if there are none.

Both are cross-fitted over cases: the combined verdict on a rated case uses the ratings of other folds only, that on an unrated
case is the mean over the folds. So the result can be compared with people and used in `prediction_powered` like any judge's
(Zrnic and Candès 2024, "Cross-prediction-powered inference").

A missing verdict is not imputed: a response is combined from the judges that have a valid verdict on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from automedeval.stats.agreement import Panel

FOLDS = 5
RIDGE = 0.1  # penalty per response, on columns of variance 1
LEAST_RATED = 10  # rated cases needed to learn a combination
ROUNDS = 200  # of EM, at most
STILL = 1e-8  # EM ends when no probability changes by more
PRIOR = 1.0  # pseudo-counts in every row of a confusion matrix, half of them on the diagonal


@dataclass(frozen=True)
class Stack:
    """Hold the combined scores of several judges.

    Args:
        scores: float [responses], on people's scale; NaN where no judge has a score or too few cases are rated.
        weights: float [judges, 2], the weight of each judge's deviation within the case and of its mean over the case, in
            people's points per standard deviation; from all rated cases.
    """

    scores: np.ndarray
    weights: np.ndarray


def stack(panel: Panel, people: np.ndarray, judges: np.ndarray, folds: int = FOLDS) -> Stack:
    """Combine scores, cross-fitted over cases.

    Args:
        panel: the responses of all cases.
        people: float [responses], NaN where there is no rating.
        judges: float [judges, responses], on any scales, NaN where a judge has none.
    """
    x, there = _order_and_level(panel, judges)
    rated = ~np.isnan(people)
    rated_cases = np.unique(panel.case[rated])
    scores = np.full(len(people), np.nan)
    weights = np.zeros((len(judges), 2))
    if len(rated_cases) < LEAST_RATED:
        return Stack(scores, weights)
    fold_of = _folds(panel.cases, rated_cases, folds)
    sizes = np.bincount(panel.case[rated], minlength=panel.cases)
    share = 1 / np.maximum(sizes, 1)[panel.case]  # every case has the same weight
    patterns, pattern_of = np.unique(there, axis=1, return_inverse=True)
    pattern_of = pattern_of.ravel()
    for number, present in enumerate(patterns.T):
        mine = pattern_of == number
        if not present.any():
            continue
        columns = np.repeat(present, 2)
        usable = rated & there[present].all(axis=0)
        fits = []
        for fold in range(folds):
            others = usable & (fold_of[panel.case] != fold)
            if len(np.unique(panel.case[others])) < LEAST_RATED // 2:
                continue
            line = _fit(x[others][:, columns], people[others], share[others])
            fits.append((fold, x[:, columns] @ line[1:] + line[0]))
        if not fits:
            continue
        average = np.mean([values for _, values in fits], axis=0)
        scores[mine] = average[mine]
        for fold, values in fits:
            held = mine & (fold_of[panel.case] == fold)
            scores[held] = values[held]
        for fold in set(range(folds)) - {fold for fold, _ in fits}:
            scores[mine & (fold_of[panel.case] == fold)] = np.nan
        if present.all():
            line = _fit(x[usable], people[usable], share[usable])
            spread = x[usable].std(axis=0)
            weights = (line[1:] * spread).reshape(-1, 2)
    return Stack(scores, weights)


def _order_and_level(panel: Panel, judges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each judge's deviation from its case mean and that mean [responses, 2 x judges], and where it has a score."""
    columns = []
    for scores in judges:
        valid = ~np.isnan(scores)
        total = panel.per_case(np.where(valid, scores, 0.0), "responses")
        mean = total / np.maximum(panel.per_case(valid, "responses"), 1)
        level = mean[panel.case]
        columns += [np.where(valid, scores - level, 0.0), np.where(valid, level, 0.0)]
    return np.column_stack(columns), ~np.isnan(judges)


def _folds(cases: int, rated: np.ndarray, folds: int) -> np.ndarray:
    """Return int [cases]: the fold of each rated case, in folds of equal size, -1 for the others."""
    fold_of = np.full(cases, -1)
    fold_of[rated] = np.arange(len(rated)) % folds
    return fold_of


def _fit(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the ridge regression's intercept and weights of 0 or more, float [1 + columns]."""
    share = share / share.sum()
    middle, target = share @ x, share @ y
    centred = x - middle
    spread = np.sqrt(share @ centred**2)
    spread[spread < 1e-9] = np.inf  # a constant column gets the weight 0
    scaled = centred / spread
    root = np.sqrt(share)[:, None]
    penalty = np.sqrt(RIDGE) * np.eye(x.shape[1])
    sides = np.vstack([scaled * root, penalty]), np.concatenate([(y - target) * root[:, 0], np.zeros(x.shape[1])])
    weights = nnls(*sides)[0] / spread
    return np.concatenate([[target - middle @ weights], weights])


@dataclass(frozen=True)
class DawidSkeneFit:
    """Hold a fit of Dawid and Skene's model.

    Args:
        chances: float [items, classes], the probability of each class; NaN where no judge answered.
        tables: float [judges, classes, classes], the confusion matrices: how often a judge answers the column if the row is
            true.
        shares: float [classes], the prior probability of each class.
    """

    chances: np.ndarray
    tables: np.ndarray
    shares: np.ndarray


def dawid_skene(
    answers: np.ndarray, classes: int, truth: np.ndarray | None = None, turned: Sequence[int] | None = None
) -> DawidSkeneFit:
    """Fit Dawid and Skene's (1979) model to judges' answers.

    If some true classes are known, the confusion matrices are learned from these items alone, as in the source; otherwise
    matrices and classes are fitted together by EM. Else judges that make the same errors would define the truth.

    Args:
        answers: int [items, judges], the class that each judge chose, -1 without a valid verdict.
        classes: the number of classes.
        truth: int [items], people's classes, -1 where unknown.
        turned: for answers about pairs, the class that each class becomes if the two responses change places. Every item is
            then counted both ways, because the order of the responses is arbitrary.

    Returns:
        The fit. The chances of an item with a known class follow from its judges' answers, but its class was used to learn
        the matrices; `combine_relations` avoids that by cross-fitting.
    """
    items, judges = answers.shape
    truth = np.full(items, -1) if truth is None else truth
    answered = answers >= 0
    votes = np.zeros((judges, items, classes))
    for judge in range(judges):
        votes[judge, answered[:, judge], answers[answered[:, judge], judge]] = 1.0
    fixed = np.zeros((items, classes))
    known = truth >= 0
    fixed[known, truth[known]] = 1.0
    total = votes.sum(axis=(0, 2))
    softened = (votes.sum(axis=0) + 1 / classes) / (total[:, None] + 1)  # majority
    chances = np.where(known[:, None], fixed, softened)
    weight = (known if known.any() else total > 0).astype(float)
    prior = PRIOR * (np.eye(classes) / 2 + 0.5 / classes)
    for _ in range(ROUNDS):
        tables = np.einsum("i,ic,jik->jck", weight, chances, votes) + prior
        shares = weight @ chances + PRIOR / classes
        if turned is not None:
            turn = np.asarray(turned)
            tables = tables + tables[:, turn][:, :, turn]
            shares = shares + shares[turn]
        tables /= tables.sum(axis=2, keepdims=True)
        shares = shares / shares.sum()
        logs = np.log(shares) + np.einsum("jik,jck->ic", votes, np.log(tables))
        by_judges = np.exp(logs - logs.max(axis=1, keepdims=True))
        by_judges /= by_judges.sum(axis=1, keepdims=True)
        fresh = np.where(known[:, None], fixed, by_judges)
        moved = np.abs(fresh - chances)[weight > 0].max(initial=0.0)
        chances = fresh
        if moved < STILL:
            break
    return DawidSkeneFit(np.where((total > 0)[:, None], by_judges, np.nan), tables, shares)


RELATIONS = np.array([-1.0, 0.0, 1.0])  # the classes of a relation
TURNED = (2, 1, 0)  # their classes if the responses change places


def combine_relations(panel: Panel, people: np.ndarray, judges: np.ndarray, folds: int = FOLDS) -> np.ndarray:
    """Combine judges' relations of pairs by Dawid and Skene's model, cross-fitted over cases.

    Args:
        people: float [pairs], relations -1, 0, 1, NaN where unrated.
        judges: float [judges, pairs], NaN without a valid verdict.

    Returns:
        float [pairs, 3], the probability of each relation; NaN where no judge has a verdict or too few cases are rated.
    """
    case = panel.case[panel.pairs[0]]
    rated = np.unique(case[~np.isnan(people)])
    if len(rated) < LEAST_RATED:
        return np.full((len(people), 3), np.nan)
    fold_of = _folds(panel.cases, rated, folds)
    answers = np.where(np.isnan(judges), -1, np.nan_to_num(judges) + 1).astype(int).T
    truth = np.where(np.isnan(people), -1, np.nan_to_num(people) + 1).astype(int)
    held = [fold_of[case] == fold for fold in range(folds)]
    found = [dawid_skene(answers, 3, np.where(each, -1, truth), TURNED).chances for each in held]
    chances = np.mean(found, axis=0)
    for each, own in zip(held, found):
        chances[each] = own[each]
    return chances


def likeliest(chances: np.ndarray) -> np.ndarray:
    """Return the most probable relation of each pair, float [pairs]; NaN where there are no probabilities."""
    known = ~np.isnan(chances).any(axis=1)
    return np.where(known, RELATIONS[np.argmax(np.where(known[:, None], chances, 0.0), axis=1)], np.nan)


def expected_relation(chances: np.ndarray) -> np.ndarray:
    """Return the expected relation of each pair, float [pairs] from -1 to 1; NaN where there are no probabilities."""
    return chances @ RELATIONS


def level_chances(
    panel: Panel, people: np.ndarray, judges: np.ndarray, scale: tuple[int, int], folds: int = FOLDS
) -> np.ndarray:
    """Combine judges' scores of responses by Dawid and Skene's model of whole scores, cross-fitted over cases.

    Args:
        people: float [responses], on the scale, NaN where unrated; rounded to whole scores.
        judges: float [judges, responses], on the scale, NaN without a valid verdict; rounded to whole scores.
        scale: the lowest and the highest whole score.

    Returns:
        float [responses, levels], the probability of each whole score; NaN where no judge has one or too few cases are rated.
    """
    levels = scale[1] - scale[0] + 1
    rated = np.unique(panel.case[~np.isnan(people)])
    if len(rated) < LEAST_RATED:
        return np.full((len(people), levels), np.nan)
    answers, truth = (
        np.where(np.isnan(values), -1, np.floor(np.nan_to_num(values) + 0.5) - scale[0]).astype(int)
        for values in (judges, people)
    )
    fold_of = _folds(panel.cases, rated, folds)
    held = [fold_of[panel.case] == fold for fold in range(folds)]
    found = [dawid_skene(answers.T, levels, np.where(each, -1, truth)).chances for each in held]
    chances = np.mean(found, axis=0)
    for each, own in zip(held, found):
        chances[each] = own[each]
    return chances
