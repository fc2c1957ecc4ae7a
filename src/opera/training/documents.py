"""The documents that may be negatives of a training query.

They have a text, and they are not known to be relevant to the query.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import (
    BoolArray,
    IntArray,
    concatenated_ranges,
    distinct_numbers,
    is_among,
    is_among_ascending,
)
from opera.data import RetrievalData
from opera.data.copies import equal_positions, query_documents, text_keys
from opera.data.pairs import TrainingPairs, pair_keys, split_keys
from opera.data.texts import CorpusText


@dataclass(frozen=True)
class DocumentPool:
    """The documents to sample from. Only the first of several copies is in the pool.

    Attributes:
        group: int ``[documents]``, the first document row with the same text as each document row.
        left_out: int64, ascending, the document rows that are not in the pool, including copies.
    """

    group: IntArray
    left_out: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, data: RetrievalData, corpus_text: CorpusText) -> DocumentPool:
        """Return all documents of a data set whose encoded text is not empty."""
        empty = data.corpus.empty_rows(corpus_text)
        return cls(
            data.document_group, distinct_numbers(np.concatenate([empty, data.corpus.copies]))
        )

    def __len__(self) -> int:
        return len(self.group) - len(self.left_out)

    def holds(self, doc_rows: IntArray) -> BoolArray:
        """Whether the text of each document is in the pool: bool of the same shape."""
        return np.isin(self.group[doc_rows], self.left_out, invert=True)

    def only(self, doc_rows: IntArray) -> DocumentPool:
        """Return the pool with the texts of these documents only."""
        is_left_out = np.ones(len(self.group), dtype=bool)
        is_left_out[self.group[doc_rows]] = False
        is_left_out[self.left_out] = True
        return replace(self, left_out=np.flatnonzero(is_left_out))

    def others(self, doc_rows: IntArray) -> int:
        """Count the documents of the pool with another text than these documents."""
        return len(self) - len(self.only(doc_rows))

    def doc_rows(self, positions: IntArray) -> NDArray[np.int64]:
        """Return the document rows at 0-based positions of the pool, in the same shape."""
        # Add the number of left-out rows before a position. The i-th one is before the position
        # left_out[i] - i.
        n_before = np.searchsorted(
            self.left_out - np.arange(len(self.left_out)), positions, side="right"
        )
        return np.asarray(positions + n_before, dtype=np.int64)


@dataclass(frozen=True)
class KnownPositives:
    """The positives of the training queries, and the documents with the same text as a query.

    A copy of a positive is also a known positive.

    Attributes:
        keys: int64, ascending, the ``pair_keys`` of query groups and document groups.
        query_group: int32 ``[n]``, the group of each training query, by query index.
        document_group: int32 ``[documents]``, the group of each document, by document row.
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
        query_indices, doc_rows = query_documents(data, query_rows)
        keys = [
            pair_keys(query_group[pairs.pair_query], document_group[pairs.pair_doc]),
            pair_keys(query_group[query_indices], document_group[doc_rows]),
        ]
        if data.held_out is not None:
            held_out = text_keys(data, data.held_out)
            keys.append(held_out[np.isin(split_keys(held_out)[0], query_group)])
        return cls(distinct_numbers(np.concatenate(keys)), query_group, document_group)

    def without(self, query_indices: IntArray, doc_rows: IntArray) -> KnownPositives:
        """Return a copy without some pairs ``[m]``."""
        is_left = ~is_among(self.keys, self._keys_of(query_indices, doc_rows))
        return replace(self, keys=self.keys[is_left])

    def contains(self, query_indices: IntArray, doc_rows: IntArray) -> NDArray[np.bool_]:
        """Return whether documents are known positives of queries. The arrays are broadcast."""
        return is_among_ascending(self._keys_of(query_indices, doc_rows), self.keys)

    def among_negatives(
        self, query_indices: IntArray, doc_rows: IntArray, first_column: int
    ) -> NDArray[np.bool_]:
        """Mark the known positives among the negatives of each query in a batch.

        Args:
            query_indices: int ``[m]``, of the queries.
            doc_rows: int ``[B, c]``: the positive of each pair of the batch, then its negatives.
            first_column: the column of the first query's positive in the result.

        Returns:
            bool ``[m, B · c]``. The columns are all positives, all first negatives, and so on.
        """
        column_groups, n_queries = self.document_group[doc_rows.T.ravel()], len(query_indices)
        known = np.zeros((n_queries, len(column_groups)), dtype=bool)
        query_positions, positive_groups = self._positives_of(self.query_group[query_indices])
        positive_numbers, columns = equal_positions(positive_groups, column_groups)
        known[query_positions[positive_numbers], columns] = True
        known[np.arange(n_queries), first_column + np.arange(n_queries)] = False
        return known

    def of_query(self, query_index: int) -> NDArray[np.int64]:
        """Return the groups of a training query's known positives."""
        return self._positives_of(self.query_group[[query_index]])[1]

    def _positives_of(
        self, query_groups: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the known positives: positions in ``query_groups``, and document groups."""
        bounds = pair_keys(query_groups + np.array([[0], [1]]), np.zeros(1, dtype=np.int64))
        starts, ends = np.searchsorted(self.keys, bounds)
        key_positions = concatenated_ranges(starts, ends - starts)
        query_positions = np.repeat(np.arange(len(query_groups)), ends - starts)
        return query_positions, split_keys(self.keys[key_positions])[1]

    def _keys_of(self, query_indices: IntArray, doc_rows: IntArray) -> NDArray[np.int64]:
        return pair_keys(self.query_group[query_indices], self.document_group[doc_rows])
