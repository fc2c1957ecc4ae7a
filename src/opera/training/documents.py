"""The documents that may be negatives of a training query.

They have a text, and they are not known to be relevant to the query.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray, concatenated_ranges
from opera.data import RetrievalData
from opera.data.identity import equal_positions, query_documents, text_keys
from opera.data.pairs import TrainingPairs, pair_keys, split_keys
from opera.data.texts import CorpusText


@dataclass(frozen=True)
class DocumentPool:
    """The documents to sample from. Only the first of several copies is in the pool.

    Attributes:
        group: int ``[documents]``, the first row with the same text as each row.
        left_out: int64, ascending, the rows that are not in the pool, including copies.
    """

    group: IntArray
    left_out: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, data: RetrievalData, corpus_text: CorpusText) -> DocumentPool:
        """Return all documents of a data set whose encoded text is not empty."""
        empty = data.corpus.empty_rows(corpus_text)
        return cls(data.document_group, np.union1d(empty, data.corpus.copies))

    def __len__(self) -> int:
        return len(self.group) - len(self.left_out)

    def holds(self, rows: IntArray) -> BoolArray:
        """Whether the text of each row is in the pool: bool of the same shape."""
        return np.isin(self.group[rows], self.left_out, invert=True)

    def only(self, rows: IntArray) -> DocumentPool:
        """Return the pool with the texts of these rows only."""
        others = np.setdiff1d(np.arange(len(self.group)), self.group[rows])
        return replace(self, left_out=np.union1d(self.left_out, others))

    def others(self, rows: IntArray) -> int:
        """Count the documents of the pool with another text than these rows."""
        return len(self) - len(self.only(rows))

    def rows(self, positions: IntArray) -> NDArray[np.int64]:
        """Return the corpus rows at 0-based positions of the pool, in the same shape."""
        # Shift a position by the number of left-out rows before it. The i-th one is before the
        # position left_out[i] - i.
        shift = np.searchsorted(
            self.left_out - np.arange(len(self.left_out)), positions, side="right"
        )
        return np.asarray(positions + shift, dtype=np.int64)


@dataclass(frozen=True)
class KnownPositives:
    """The positives of the training queries, and the documents with the same text as a query.

    A copy of a positive is also a known positive.

    Attributes:
        keys: int64, ascending, the ``pair_keys`` of query groups and document groups.
        query_group: int32 ``[n]``, the group of each training query.
        document_group: int32 ``[documents]``, the group of each row of the corpus.
    """

    keys: NDArray[np.int64]
    query_group: NDArray[np.int32]
    document_group: NDArray[np.int32]

    @classmethod
    def of(cls, data: RetrievalData, query_rows: IntArray, pairs: TrainingPairs) -> KnownPositives:
        """Collect the training pairs, and the held-out judgements of the same queries.

        Args:
            data: the texts, and held-out judgements.
            query_rows: int ``[n]``, the row of each training query in the query table.
            pairs: the training pairs.
        """
        query_group, document_group = data.query_group[query_rows], data.document_group
        position, document = query_documents(data, query_rows)
        keys = [
            pair_keys(query_group[pairs.pair_query], document_group[pairs.pair_doc]),
            pair_keys(query_group[position], document_group[document]),
        ]
        if data.held_out is not None:
            held_out = text_keys(data, data.held_out)
            keys.append(held_out[np.isin(split_keys(held_out)[0], query_group)])
        return cls(np.unique(np.concatenate(keys)), query_group, document_group)

    def without(self, queries: IntArray, docs: IntArray) -> KnownPositives:
        """Return a copy without some pairs: training queries ``[m]`` and corpus rows ``[m]``."""
        return replace(self, keys=np.setdiff1d(self.keys, self._keys_of(queries, docs)))

    def contains(self, queries: IntArray, docs: IntArray) -> NDArray[np.bool_]:
        """Return whether documents are known positives of queries. The arrays are broadcast."""
        wanted = self._keys_of(queries, docs)
        position = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.asarray(self.keys[position] == wanted)

    def among_negatives(
        self, queries: IntArray, documents: IntArray, first: int
    ) -> NDArray[np.bool_]:
        """Mark the known positives among the negatives of each query in a batch.

        Args:
            queries: int ``[m]``, the training queries.
            documents: int ``[B, c]``, corpus rows: the positive of each pair of the batch, then
                its negatives.
            first: the row of the first query's positive in ``documents``.

        Returns:
            bool ``[m, B · c]``: all positives, all first negatives, and so on.
        """
        columns, n = self.document_group[documents.T.ravel()], len(queries)
        known = np.zeros((n, len(columns)), dtype=bool)
        row, document = self._positives_of(self.query_group[queries])
        position, column = equal_positions(document, columns)
        known[row[position], column] = True
        known[np.arange(n), first + np.arange(n)] = False
        return known

    def of_query(self, query: int) -> NDArray[np.int64]:
        """Return the groups of a training query's known positives."""
        return self._positives_of(self.query_group[[query]])[1]

    def _positives_of(
        self, query_groups: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return positions in ``query_groups`` and the groups of the known positives there."""
        bounds = pair_keys(query_groups + np.array([[0], [1]]), np.zeros(1, dtype=np.int64))
        first, end = np.searchsorted(self.keys, bounds)
        positions = concatenated_ranges(first, end - first)
        position = np.repeat(np.arange(len(query_groups)), end - first)
        return position, split_keys(self.keys[positions])[1]

    def _keys_of(self, queries: IntArray, docs: IntArray) -> NDArray[np.int64]:
        return pair_keys(self.query_group[queries], self.document_group[docs])
