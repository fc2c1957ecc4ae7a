"""Which documents may be drawn for which training query: those with a text that are no known
positive of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray
from opera.data import Qrels, RetrievalData
from opera.data.pairs import TrainingPairs, pair_keys, split_keys
from opera.data.texts import CorpusText


@dataclass(frozen=True)
class DocumentPool:
    """The rows of a corpus without some of them.

    Attributes:
        n_docs: size of the corpus.
        left_out: int64, ascending, the rows that are not drawn.
    """

    n_docs: int
    left_out: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, data: RetrievalData, corpus_text: CorpusText) -> DocumentPool:
        """All documents of a data set that ``corpus_text`` leaves a text."""
        return cls(len(data.corpus), data.corpus.empty_rows(corpus_text))

    def __len__(self) -> int:
        return self.n_docs - len(self.left_out)

    def without(self, rows: IntArray) -> DocumentPool:
        """The same without more rows."""
        return DocumentPool(self.n_docs, np.union1d(self.left_out, rows).astype(np.int64))

    def holds(self, rows: IntArray) -> BoolArray:
        """Whether each row may be drawn: bool of the same shape."""
        if len(self.left_out) == 0:
            return np.ones(np.shape(rows), dtype=bool)
        return np.isin(rows, self.left_out, invert=True)

    def rows(self, places: IntArray) -> NDArray[np.int64]:
        """Return the corpus rows at 0-based places of the pool, of the same shape."""
        # A place is shifted past the rows left out before it: the i-th of them stands before place
        # left_out[i] - i.
        shift = np.searchsorted(self.left_out - np.arange(len(self.left_out)), places, side="right")
        return np.asarray(places + shift, dtype=np.int64)


CHUNK_KEYS = 2**16


class KnownPositives:
    """All labelled positives of the training queries, as sorted int64 keys (8 bytes per pair).

    Args:
        pairs: the training pairs.
        n_docs: size of the corpus.
        query_rows: int ``[n]``, ascending, the query table's row of each training query; needed
            with ``held_out``.
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
        """Put those of several data sets together, whose queries and documents begin at these rows
        of all.
        """
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
        """Return whether documents are known positives of queries; the two arrays are broadcast
        together.
        """
        keys = pair_keys(queries, docs)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.asarray(self._keys[at] == keys)

    def among(self, docs: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the known positives among a few documents ``[c]``, ascending, going through all
        pairs once.

        Returns:
            The query of each one found, ascending, and the place of its document in ``docs``: both
            int64 ``[m]``.
        """
        found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        for start in range(0, len(self._keys), CHUNK_KEYS):
            queries, documents = split_keys(self._keys[start : start + CHUNK_KEYS])
            places = np.minimum(np.searchsorted(docs, documents), len(docs) - 1)
            hit = docs[places] == documents
            found.append((queries[hit], places[hit]))
        queries, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return queries, places
