"""Look up which documents are known positives of which training queries, for many pairs at once."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.data import Qrels
from opera.data.pairs import TrainingPairs, pair_keys, split_keys

CHUNK_KEYS = 2**16


class KnownPositives:
    """All labelled positives of the training queries, as sorted int64 keys (8 bytes per pair).

    Args:
        pairs: the training pairs.
        n_docs: size of the corpus.
        query_rows: int ``[n]``, ascending, the query table's row of each training query; needed with ``held_out``.
        held_out: more positives of the same queries, which do not train.
    """

    def __init__(
        self,
        pairs: TrainingPairs,
        n_docs: int,
        query_rows: IntArray | None = None,
        held_out: Qrels | None = None,
    ) -> None:
        self.n_docs = n_docs
        keys = pair_keys(pairs.pair_query, pairs.pair_doc)
        if held_out is not None and query_rows is not None:
            left = held_out.select_queries(np.isin(held_out.query_rows, query_rows))
            queries = np.searchsorted(query_rows, left.query_rows[left.query_index])
            keys = np.concatenate([keys, pair_keys(queries, left.doc_rows)])
        self._keys = np.sort(keys)

    @classmethod
    def joined(
        cls,
        parts: Sequence[KnownPositives],
        first_queries: IntArray,
        first_documents: IntArray,
        n_docs: int,
    ) -> KnownPositives:
        """Put those of several data sets together, whose queries and documents begin at these rows of all."""
        whole, keys = copy(parts[0]), []
        for part, query, document in zip(
            parts, first_queries.tolist(), first_documents.tolist(), strict=True
        ):
            keys.append(part._keys + pair_keys(query, document))
        whole.n_docs, whole._keys = n_docs, np.sort(np.concatenate(keys))
        return whole

    def without(self, queries: IntArray, docs: IntArray) -> KnownPositives:
        """Forget some pairs: training queries ``[m]`` and their corpus rows ``[m]``."""
        left = copy(self)
        left._keys = np.setdiff1d(self._keys, pair_keys(queries, docs))
        return left

    def contains(self, queries: IntArray, docs: IntArray) -> NDArray[np.bool_]:
        """Return whether documents are known positives of queries; the two arrays are broadcast together."""
        keys = pair_keys(queries, docs)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.asarray(self._keys[at] == keys)

    def among(self, docs: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the known positives among a few documents ``[c]``, ascending, going through all pairs once.

        Returns:
            The query of each one found, ascending, and the place of its document in ``docs``: both int64 ``[m]``.
        """
        found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        for start in range(0, len(self._keys), CHUNK_KEYS):
            queries, documents = split_keys(self._keys[start : start + CHUNK_KEYS])
            places = np.minimum(np.searchsorted(docs, documents), len(docs) - 1)
            hit = docs[places] == documents
            found.append((queries[hit], places[hit]))
        queries, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return queries, places
