"""BM25 over the passages of an embedded store, in a sparse matrix (Robertson and Zaragoza 2009).

An embedded Qdrant compares a query with one sparse vector after another in Python. Here the query's words are columns of one
matrix, and a search adds a few of them. A Qdrant server keeps an index of its own, with the same scores.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy import sparse


class WordIndex:
    """The BM25 weights of passages, by passage and word.

    Args:
        passages: (id, kind, numbers of its words, their weights without the inverse document frequency) of each passage.
    """

    def __init__(self, passages: Iterable[tuple[str, str, Sequence[int], Sequence[float]]]):
        rows = list(passages)
        self.ids = [row[0] for row in rows]
        self._kinds = np.array([row[1] for row in rows], dtype=object)
        sizes = [len(row[2]) for row in rows]
        words = np.fromiter((word for row in rows for word in row[2]), np.int64, sum(sizes))
        weights = np.fromiter((weight for row in rows for weight in row[3]), np.float64, sum(sizes))
        self._words, columns = np.unique(words, return_inverse=True)
        owners = np.repeat(np.arange(len(rows)), sizes)
        matrix = sparse.csc_matrix((weights, (owners, columns)), shape=(len(rows), len(self._words)))
        counts = np.diff(matrix.indptr)
        # The inverse document frequency as Qdrant computes it.
        rarity = np.log((len(rows) - counts + 0.5) / (counts + 0.5) + 1)
        matrix.data *= np.repeat(rarity, counts)
        self._matrix = matrix

    def search(self, words: Sequence[int], limit: int, kind: str | None = None) -> list[tuple[str, float]]:
        """Return (id, score) of the passages that share a word, best first and at most `limit`; of one kind only, if given."""
        places = np.searchsorted(self._words, words)
        known = [place for place, word in zip(places, words) if place < len(self._words) and self._words[place] == word]
        if not known:
            return []
        scores = np.zeros(len(self.ids))
        for place in known:  # the same passage is in a column once
            begin, end = self._matrix.indptr[place : place + 2]
            scores[self._matrix.indices[begin:end]] += self._matrix.data[begin:end]
        if kind is not None:
            scores[self._kinds != kind] = 0.0
        limit = min(limit, len(scores))
        best = np.argpartition(-scores, limit - 1)[:limit]
        best = best[np.lexsort((best, -scores[best]))]
        return [(self.ids[index], float(scores[index])) for index in best if scores[index] > 0]
