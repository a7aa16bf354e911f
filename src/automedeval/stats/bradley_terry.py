"""Bradley-Terry strengths of candidates from won and lost comparisons."""

from itertools import combinations

import numpy as np
from scipy.sparse.csgraph import connected_components


def count_wins(
    first: np.ndarray, second: np.ndarray, relation: np.ndarray, case: np.ndarray, cases: int, models: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count (wins, ties) per case: float [cases, models, models], entry (i, j) for i over j, and for ties of i with j.

    Args:
        first, second: the models of each pair, as numbers.
        relation: -1, 0, 1 as the first is worse, level or better; NaN where there is none.
        case: the case of each pair.
    """
    wins, ties = np.zeros((2, cases, models, models))
    np.add.at(wins, (case, first, second), (relation == 1).astype(float))
    np.add.at(wins, (case, second, first), (relation == -1).astype(float))
    for one, other in ((first, second), (second, first)):
        np.add.at(ties, (case, one, other), (relation == 0).astype(float))
    return wins, ties


def unconnected(compared: np.ndarray, models: list[str]) -> str | None:
    """Return why models cannot be ranked against each other, None if comparisons [models, models] connect them all."""
    parts, part = connected_components(compared > 0, directed=False)
    if parts == 1:
        return None
    sizes = np.bincount(part)
    apart = [name for name, own in zip(models, part) if own != np.argmax(sizes)]
    shown = ", ".join(apart[:3]) + (f" and {len(apart) - 3} more" if len(apart) > 3 else "")
    return f"the {len(models)} models fall into {parts} groups that were never compared with each other ({shown} apart)"


def bradley_terry(wins: np.ndarray, steps: int = 2000, tolerance: float = 1e-8) -> np.ndarray:
    """Return log strengths [..., models] of wins [..., models, models], ties counted as half a win for each, mean 0.

    Maximum likelihood by Hunter's (2004) minorisation. A model that never won, or never lost, has no finite strength: see
    `unbeaten`; here it stands far out.
    """
    played = wins + np.swapaxes(wins, -1, -2)
    won = np.maximum(wins.sum(-1), 1e-12)
    strengths = np.ones(wins.shape[:-1])
    for _ in range(steps):
        denominators = (played / (strengths[..., :, None] + strengths[..., None, :])).sum(-1)
        updated = won / np.maximum(denominators, 1e-12)
        updated = np.maximum(updated / np.exp(np.log(updated).mean(-1, keepdims=True)), 1e-12)
        moved = np.abs(np.log(updated / strengths)).max(initial=0.0)
        strengths = updated
        if moved < tolerance:
            break
    logs = np.log(strengths)
    return logs - logs.mean(-1, keepdims=True)


def unbeaten(wins: np.ndarray, models: list[str]) -> str | None:
    """Return why Bradley–Terry strengths are not finite, None if they are."""
    parts, part = connected_components(wins > 0, directed=True, connection="strong")
    if parts == 1:
        return None
    names = [[name for name, own in zip(models, part) if own == number] for number in range(parts)]
    return (
        "no finite strengths: some models won, or lost, every comparison with the others ("
        + " | ".join(", ".join(group) for group in names)
        + ")"
    )


def misfit(wins: np.ndarray, strengths: np.ndarray, models: list[str]) -> dict[str, object]:
    """Tell how far the win shares are from what Bradley–Terry strengths predict, and which triples go round in a circle.

    Returns:
        {"root_mean_square", "largest": {"pair", "observed", "predicted"}, "circles": [[a, b, c], …]} with a over b over c
        over a by majority.
    """
    played = wins + wins.T
    pairs = [(i, j) for i, j in combinations(range(len(models)), 2) if played[i, j]]
    observed = np.array([wins[i, j] / played[i, j] for i, j in pairs])
    predicted = np.array([1 / (1 + np.exp(strengths[j] - strengths[i])) for i, j in pairs])
    gaps = observed - predicted
    worst = int(np.argmax(np.abs(gaps)))
    i, j = pairs[worst]
    beats = wins > wins.T
    circles = []
    for a, b, c in combinations(range(len(models)), 3):
        for x, y, z in ((a, b, c), (a, c, b)):
            if beats[x, y] and beats[y, z] and beats[z, x]:
                circles.append([models[x], models[y], models[z]])
    return {
        "root_mean_square": float(np.sqrt((gaps**2).mean())),
        "largest": {
            "pair": [models[i], models[j]],
            "observed": float(observed[worst]),
            "predicted": float(predicted[worst]),
        },
        "circles": circles,
    }
