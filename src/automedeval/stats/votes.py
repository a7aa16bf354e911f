"""How many independent judges a group of judges is worth.

If the errors of n judges have the correlations R, their mean has the variance s² · sum(R) / n², with s² the variance of one
judge. The mean of m independent judges has s² / m. So the group is worth m = n² / sum(R) votes (the effective sample size of
Kish 1965 for correlated draws): n judges with the same errors are worth 1, n judges with independent errors n.
"""

import numpy as np


def correlations(values: np.ndarray) -> np.ndarray:
    """Return Pearson's correlations of the rows [judges, responses], each over the responses that both have: [judges, judges].

    NaN where fewer than three responses are common, or where one of the two does not vary.
    """
    count = len(values)
    matrix = np.full((count, count), np.nan)
    for row in range(count):
        for column in range(row, count):
            both = ~np.isnan(values[row]) & ~np.isnan(values[column])
            x, y = values[row][both], values[column][both]
            if both.sum() > 2 and np.std(x) * np.std(y) > 1e-12:
                matrix[row, column] = matrix[column, row] = np.corrcoef(x, y)[0, 1]
    return matrix


def effective_votes(errors: np.ndarray) -> float | None:
    """Return the number of independent judges that judges with these errors are worth.

    Args:
        errors: float [judges, responses], each judge's score less people's; NaN where there is none.

    Returns:
        The number; None if a correlation is not known, or if they sum to 0 or less, so that no number of judges is equal.
    """
    total = correlations(errors).sum()
    return float(len(errors) ** 2 / total) if total > 1e-9 else None  # NaN compares false
