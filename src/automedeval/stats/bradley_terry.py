"""Bradley-Terry strengths of candidates from won and lost comparisons."""

import numpy as np
import scipy

from automedeval.stats.logistic import fit_logistic


def count_wins(
    first: np.ndarray, second: np.ndarray, relation: np.ndarray, case: np.ndarray, cases: int, models: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (wins, ties), each float [cases, models, models]: how often i beat j, and how often i and j tied.

    Args:
        first, second: int [pairs], the models of each pair.
        relation: float [pairs], -1, 0 or 1 if the first is worse, equal or better; NaN where unknown.
        case: int [pairs], the case of each pair.
    """
    wins, ties = np.zeros((2, cases, models, models))
    np.add.at(wins, (case, first, second), (relation == 1).astype(float))
    np.add.at(wins, (case, second, first), (relation == -1).astype(float))
    for left, right in ((first, second), (second, first)):
        np.add.at(ties, (case, left, right), (relation == 0).astype(float))
    return wins, ties


def unconnected(compared: np.ndarray, models: list[str]) -> str | None:
    """Return why models cannot be ranked together, None if comparisons, float [models, models], connect them all."""
    parts, part = scipy.sparse.csgraph.connected_components(compared > 0, directed=False)
    if parts == 1:
        return None
    sizes = np.bincount(part)
    apart = [name for name, group in zip(models, part) if group != np.argmax(sizes)]
    shown = ", ".join(apart[:3]) + (f" and {len(apart) - 3} more" if len(apart) > 3 else "")
    return f"the {len(models)} models fall into {parts} groups that were never compared with each other ({shown} apart)"


def bradley_terry(wins: np.ndarray) -> np.ndarray:
    """Return the maximum-likelihood log strengths [..., models] of wins [..., models, models], mean 0.

    A logistic regression: logit P(i beats j) = strength(i) - strength(j) (Bradley and Terry 1952). Ties count as half a win
    for each. NaN where the strengths are not finite: some models won, or lost, every comparison with the others.
    """
    models = wins.shape[-1]
    tables = wins.reshape(-1, models, models)
    finite = np.array([_beats(table)[0] == 1 for table in tables], bool)
    tables = tables[finite]
    first, second = np.triu_indices(models, 1)
    # The strength of the last model is held at 0, or only differences would be determined.
    design = (np.eye(models)[first] - np.eye(models)[second])[:, :-1]
    won, lost = tables[:, first, second], tables[:, second, first]
    strengths = np.full((len(finite), models), np.nan)
    strengths[finite] = np.pad(fit_logistic(design, won, won + lost), ((0, 0), (0, 1)))
    return (strengths - strengths.mean(-1, keepdims=True)).reshape(wins.shape[:-1])


def unbeaten(wins: np.ndarray, models: list[str]) -> str | None:
    """Return why Bradley–Terry strengths are not finite, None if they are."""
    parts, part = _beats(wins)
    if parts == 1:
        return None
    names = [", ".join(name for name, group in zip(models, part) if group == number) for number in range(parts)]
    return f"no finite strengths: some models won, or lost, every comparison with the others ({' | '.join(names)})"


def _beats(wins: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the number of groups within which wins lead from every model to every other, and the group of each model.

    The strengths are finite if there is one group (Ford 1957).
    """
    return scipy.sparse.csgraph.connected_components(wins > 0, directed=True, connection="strong")
