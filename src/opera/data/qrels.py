"""Relevance judgements as integer arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.data.pairs import TrainingPairs


@dataclass(frozen=True)
class Qrels:
    """The relevance qrels of one split, sorted by query row, then document row.

    Attributes:
        query_rows: int32 ``[n]``, the judged queries' rows in the query table.
        offsets: int64 ``[n + 1]``; qrels of query i are ``offsets[i]`` to ``offsets[i + 1]``.
        doc_rows: int32 ``[M]``, rows in the corpus.
        grades: int32 ``[M]``; above 0 is relevant.
    """

    query_rows: NDArray[np.int32]
    offsets: NDArray[np.int64]
    doc_rows: NDArray[np.int32]
    grades: NDArray[np.int32]

    @classmethod
    def of(cls, query: IntArray, doc: IntArray, grade: IntArray) -> Qrels:
        """Build from parallel arrays ``[M]`` in any order, without repeated (query, document) pairs."""
        order = np.lexsort((doc, query))
        rows, counts = np.unique(np.asarray(query), return_counts=True)
        return cls(
            rows.astype(np.int32),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.asarray(doc, dtype=np.int32)[order],
            np.asarray(grade, dtype=np.int32)[order],
        )

    @property
    def n_queries(self) -> int:
        """Number of judged queries."""
        return len(self.query_rows)

    @cached_property
    def query_of(self) -> NDArray[np.int32]:
        """For each judgement, which of the judged queries (0 to n-1) it is of: int32 ``[M]``."""
        return np.repeat(np.arange(self.n_queries, dtype=np.int32), np.diff(self.offsets))

    def relevant(self) -> Qrels:
        """Keep the judgements above 0, and the queries that have one."""
        keep = self.grades > 0
        return Qrels.of(self.query_rows[self.query_of[keep]], self.doc_rows[keep], self.grades[keep])

    def of_queries(self, keep: NDArray[np.bool_]) -> Qrels:
        """Keep some of the judged queries: ``keep`` is bool ``[n]``."""
        rows = keep[self.query_of]
        return Qrels.of(self.query_rows[self.query_of[rows]], self.doc_rows[rows], self.grades[rows])

    def pairs(self) -> TrainingPairs:
        """Return these qrels as training pairs; query i of the pairs is ``query_rows[i]``."""
        return TrainingPairs.of(self.query_of, self.doc_rows)


@dataclass(frozen=True)
class GivenNegatives:
    """Negatives that came with the data, for the queries of the train split.

    Attributes:
        offsets: int64 ``[q + 1]`` over all rows of the query table.
        doc_rows: int32, rows in the corpus.
    """

    offsets: NDArray[np.int64]
    doc_rows: NDArray[np.int32]
