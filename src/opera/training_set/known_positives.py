"""Look up which documents are known positives of which training queries, for many pairs at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.data.pairs import TrainingPairs


class KnownPositives:
    """All labelled positives of the training queries, as sorted int64 keys (8 bytes per pair).

    Args:
        pairs: the training pairs.
        n_docs: size of the corpus.
    """

    def __init__(self, pairs: TrainingPairs, n_docs: int) -> None:
        self.n_docs = n_docs
        self._keys = np.sort(pairs.pair_query.astype(np.int64) * n_docs + pairs.pair_doc)

    def contains(self, queries: IntArray, docs: IntArray) -> NDArray[np.bool_]:
        """Return whether documents are known positives of queries; the two arrays are broadcast together."""
        keys = np.asarray(queries, dtype=np.int64) * self.n_docs + np.asarray(docs, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.asarray(self._keys[at] == keys)
