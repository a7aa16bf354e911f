"""Several judges as one: combined by their agreement with people, and what each of them adds.

Arrays in, arrays out. Two ways, one for each kind of verdict:

- scores are stacked (Wolpert 1992; with weights of 0 or more, Breiman 1996): a ridge regression of people's scores on every
  judge's, taken apart into its order within the case and its level;
- relations and choices are combined as Dawid and Skene (1979) do: each judge has a table of how it errs, learned where people
  said what is true, or, where nobody said anything, fitted by EM together with what is true.

Both are cross-fitted over cases: what is said of a rated case comes from the ratings of other cases alone, and what is said
of one that nobody rated is the mean over the folds. So they can be compared with people, and put into `prediction_powered`, as
any judge's (Zrnic and Candès 2024, "Cross-prediction-powered inference").

No judge is made up for: a response that a judge has no valid verdict on is combined from the judges that have one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from automedeval.stats.agreement import Panel

FOLDS = 5
RIDGE = 0.1  # penalty per response, on columns of variance 1
LEAST_RATED = 10  # cases that a combination is learned from; below, there is none
ROUNDS = 200  # of EM, at most
STILL = 1e-8  # largest change of a probability at which EM ends
PRIOR = 1.0  # pseudo-counts in every row of a judge's table of errors, half of them on the right answer


@dataclass(frozen=True)
class Stack:
    """Judges' scores combined into one.

    Args:
        scores: float [responses], NaN where no judge has one or the ratings are too few.
        weights: float [judges, 2], each judge's weight within the case and on its level, in people's points per standard
            deviation of the judge; from all rated cases.
    """

    scores: np.ndarray
    weights: np.ndarray


def stack(panel: Panel, people: np.ndarray, judges: np.ndarray, folds: int = FOLDS) -> Stack:
    """Combine scores, cross-fitted over cases.

    Args:
        panel: the responses of all cases.
        people: float [responses], NaN where there is no rating.
        judges: float [judges, responses], on any scales, NaN where a judge has none.

    Returns:
        The combined scores, on people's scale.
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
    share = 1 / np.maximum(sizes, 1)[panel.case]  # every case counts alike, however many responses it has
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
    """Return [responses, 2 x judges], each judge's deviation from its mean of the case and that mean, and where it has any."""
    columns = []
    for scores in judges:
        valid = ~np.isnan(scores)
        total = panel.per_case(np.where(valid, scores, 0.0), "responses")
        mean = total / np.maximum(panel.per_case(valid, "responses"), 1)
        level = mean[panel.case]
        columns += [np.where(valid, scores - level, 0.0), np.where(valid, level, 0.0)]
    return np.column_stack(columns), ~np.isnan(judges)


def _folds(cases: int, rated: np.ndarray, folds: int) -> np.ndarray:
    """Return each rated case's fold, as even as can be, -1 for the others."""
    fold_of = np.full(cases, -1)
    fold_of[rated] = np.arange(len(rated)) % folds
    return fold_of


def _fit(x: np.ndarray, y: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return [1 + columns]: intercept and weights, 0 or more, of the ridge regression."""
    share = share / share.sum()
    middle, target = share @ x, share @ y
    centred = x - middle
    spread = np.sqrt(share @ centred**2)
    spread[spread < 1e-9] = np.inf  # what never differs says nothing
    scaled = centred / spread
    root = np.sqrt(share)[:, None]
    penalty = np.sqrt(RIDGE) * np.eye(x.shape[1])
    sides = np.vstack([scaled * root, penalty]), np.concatenate([(y - target) * root[:, 0], np.zeros(x.shape[1])])
    weights = nnls(*sides)[0] / spread
    return np.concatenate([[target - middle @ weights], weights])


@dataclass(frozen=True)
class Errors:
    """What Dawid and Skene's model makes of several judges' answers.

    Args:
        chances: float [items, classes], how likely each class is to be the true one; NaN where no judge answered.
        tables: float [judges, classes, classes], how often a judge answers the column where the row is true.
        shares: float [classes], how common each class is.
    """

    chances: np.ndarray
    tables: np.ndarray
    shares: np.ndarray


def dawid_skene(
    answers: np.ndarray, classes: int, truth: np.ndarray | None = None, turned: Sequence[int] | None = None
) -> Errors:
    """Learn how judges err and what is true (Dawid and Skene 1979): from people's word, by EM where there is none.

    Args:
        answers: int [items, judges], the class that each judge chose, -1 where it has no valid verdict.
        classes: how many there are.
        truth: int [items], what people said, -1 where they said nothing.
        turned: for answers about pairs, what each class becomes when the two change places: every item then counts both ways
            round, for which of them comes first is of no meaning.

    Returns:
        Chances are those before people's word: an item with a known truth gets what its judges alone make likely, though its
        truth has helped to learn their tables; `combine_relations` keeps it out of those too. Where some truths are known, the
        tables are learned from these alone, as the source does where true answers are at hand: else judges that err alike would
        make their own view the truth, however few or many people's words are.
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
    chances = np.where(
        known[:, None], fixed, (votes.sum(axis=0) + 1 / classes) / (total[:, None] + 1)
    )  # the majority, softened
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
        told = np.exp(logs - logs.max(axis=1, keepdims=True))
        told /= told.sum(axis=1, keepdims=True)
        fresh = np.where(known[:, None], fixed, told)
        moved = np.abs(fresh - chances)[weight > 0].max(initial=0.0)
        chances = fresh
        if moved < STILL:
            break
    return Errors(np.where((total > 0)[:, None], told, np.nan), tables, shares)


RELATIONS = np.array([-1.0, 0.0, 1.0])  # the classes of a relation
TURNED = (2, 1, 0)


def combine_relations(panel: Panel, people: np.ndarray, judges: np.ndarray, folds: int = FOLDS) -> np.ndarray:
    """Combine judges' relations of pairs, cross-fitted over cases.

    Args:
        people: float [pairs], relations -1, 0, 1, NaN where people said nothing.
        judges: float [judges, pairs], NaN where a judge has no valid verdict.

    Returns:
        float [pairs, 3], how likely each relation is to be people's; NaN where no judge has a verdict, or too few cases are
        rated.
    """
    case = panel.case[panel.pairs[0]]
    rated = np.unique(case[~np.isnan(people)])
    nothing = np.full((len(people), 3), np.nan)
    if len(rated) < LEAST_RATED:
        return nothing
    fold_of = _folds(panel.cases, rated, folds)
    answers = np.where(np.isnan(judges), -1, np.nan_to_num(judges) + 1).astype(int).T
    truth = np.where(np.isnan(people), -1, np.nan_to_num(people) + 1).astype(int)
    found = []
    for fold in range(folds):
        held = fold_of[case] == fold
        found.append(dawid_skene(answers, 3, np.where(held, -1, truth), TURNED).chances)
    chances = np.mean(found, axis=0)
    for fold, told in enumerate(found):
        held = fold_of[case] == fold
        chances[held] = told[held]
    return chances


def likeliest(chances: np.ndarray) -> np.ndarray:
    """Return the likeliest relation of each pair, float [pairs], NaN where nothing is known."""
    known = ~np.isnan(chances).any(axis=1)
    return np.where(known, RELATIONS[np.argmax(np.where(known[:, None], chances, 0.0), axis=1)], np.nan)


def expected_relation(chances: np.ndarray) -> np.ndarray:
    """Return the mean relation of each pair, float [pairs] from -1 to 1, NaN where nothing is known."""
    return chances @ RELATIONS
