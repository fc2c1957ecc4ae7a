"""Relevance judgements (qrels), lists of documents and a teacher's scores, as arrays by row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray, is_among
from opera.data.pairs import TrainingPairs, pair_keys

ROUNDING = 1e-3
"""The largest rounding error of a cosine."""


@dataclass(frozen=True)
class Qrels:
    """The qrels of one split, sorted by query row, then document row.

    The query index is the number of a judged query, from 0 to n - 1.

    Attributes:
        query_rows: int32 ``[n]``, rows of the judged queries in the query table.
        offsets: int64 ``[n + 1]``; the judgements with the query index i are ``offsets[i]`` to
            ``offsets[i + 1]``.
        doc_rows: int32 ``[M]``, rows in the corpus.
        grades: int32 ``[M]``; above 0 is relevant.
        weights: float32 ``[M]``, weights of the judgements, such as clicks: finite, 0 or more;
            ``None`` if the data have no weights.
    """

    query_rows: NDArray[np.int32]
    offsets: NDArray[np.int64]
    doc_rows: NDArray[np.int32]
    grades: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None

    @classmethod
    def from_arrays(
        cls,
        query_rows: IntArray,
        doc_rows: IntArray,
        grades: IntArray,
        weights: FloatArray | None = None,
    ) -> Qrels:
        """Build qrels from parallel arrays ``[M]`` in any order, without repeated pairs.

        Raises:
            ValueError: for a weight that is below 0 or not finite.
        """
        order = np.lexsort((doc_rows, query_rows))
        judged, counts = np.unique(np.asarray(query_rows), return_counts=True)
        if weights is not None:
            weights = np.asarray(weights, dtype=np.float32)[order]
            if not (np.isfinite(weights) & (weights >= 0)).all():
                raise ValueError("weights must be finite and 0 or more")
        return cls(
            judged.astype(np.int32),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.asarray(doc_rows, dtype=np.int32)[order],
            np.asarray(grades, dtype=np.int32)[order],
            weights,
        )

    @property
    def n_queries(self) -> int:
        """Number of judged queries."""
        return len(self.query_rows)

    @cached_property
    def query_index(self) -> NDArray[np.int32]:
        """The query index of each judgement: int32 ``[M]``."""
        return np.repeat(np.arange(self.n_queries, dtype=np.int32), np.diff(self.offsets))

    @property
    def keys(self) -> NDArray[np.int64]:
        """One number per judged pair, ascending: int64 ``[M]``; see ``pair_keys``."""
        return pair_keys(self.query_rows[self.query_index], self.doc_rows)

    @property
    def has_relevant(self) -> BoolArray:
        """Whether each judged query has a relevant document: bool ``[n]``."""
        return np.bincount(self.query_index[self.grades > 0], minlength=self.n_queries) > 0

    def relevant(self) -> Qrels:
        """Keep the judgements above 0 and the queries that have one."""
        return self.select_judgements(self.grades > 0)

    def select_queries(self, keep: BoolArray) -> Qrels:
        """Keep the judged queries where ``keep``, bool ``[n]``, is true."""
        return self.select_judgements(keep[self.query_index])

    def select_judgements(self, keep: BoolArray) -> Qrels:
        """Keep the judgements where ``keep``, bool ``[M]``, is true, and their queries."""
        if keep.all() and np.all(np.diff(self.offsets)):
            return self
        counts = np.diff(np.concatenate([[0], np.cumsum(keep)])[self.offsets])
        has_judgement = counts > 0
        return Qrels(
            self.query_rows[has_judgement],
            np.concatenate([[0], np.cumsum(counts[has_judgement])]).astype(np.int64),
            self.doc_rows[keep],
            self.grades[keep],
            None if self.weights is None else self.weights[keep],
        )

    def union(self, other: Qrels) -> Qrels:
        """Return the judgements of both, which must not judge the same pair.

        A side without weights has weights of 1.
        """
        weighted = self.weights is not None or other.weights is not None
        return Qrels.from_arrays(
            np.concatenate(
                [self.query_rows[self.query_index], other.query_rows[other.query_index]]
            ),
            np.concatenate([self.doc_rows, other.doc_rows]),
            np.concatenate([self.grades, other.grades]),
            np.concatenate([self.weights_or_ones(), other.weights_or_ones()]) if weighted else None,
        )

    def shifted(self, first_query_row: int, first_doc_row: int) -> Qrels:
        """Return the judgements for joined tables, in which the data set begins at these rows."""
        return replace(
            self,
            query_rows=self.query_rows + np.int32(first_query_row),
            doc_rows=self.doc_rows + np.int32(first_doc_row),
        )

    def weights_or_ones(self) -> NDArray[np.float32]:
        """The weight of each judgement, 1 if the data have no weights: float32 ``[M]``."""
        return (
            np.ones(len(self.doc_rows), dtype=np.float32) if self.weights is None else self.weights
        )

    def contains(self, other: Qrels) -> BoolArray:
        """Whether this judges the pair of each judgement of ``other``: bool ``[M of other]``."""
        return is_among(other.keys, self.keys)

    def pairs(self) -> TrainingPairs:
        """Return the judgements as training pairs, with the same query indices."""
        return TrainingPairs.from_arrays(self.query_index, self.doc_rows)


@dataclass(frozen=True)
class DocumentLists:
    """Documents listed per query, such as mined ones.

    The negatives that came with the data have a list for each query row. Other lists have one for
    each query index of train.

    Attributes:
        offsets: int64 ``[n + 1]``; query q's list is ``offsets[q]`` to ``offsets[q + 1]``.
        doc_rows: int32 ``[K]``, corpus rows.
    """

    offsets: NDArray[np.int64]
    doc_rows: NDArray[np.int32]

    @classmethod
    def from_counts(cls, counts: IntArray, doc_rows: IntArray) -> DocumentLists:
        """Build from the lengths of the lists, int ``[n]``, and their corpus rows ``[K]``."""
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(offsets, np.asarray(doc_rows).astype(np.int32))

    @classmethod
    def of(cls, lists: Sequence[IntArray]) -> DocumentLists:
        """Build from one array of corpus rows per query."""
        counts = np.array([len(of_query) for of_query in lists], dtype=np.int64)
        return cls.from_counts(counts, np.concatenate([np.empty(0, dtype=np.int32), *lists]))

    @classmethod
    def joined(
        cls,
        lists: Sequence[DocumentLists | None],
        n_queries: Sequence[int],
        first_doc_rows: Sequence[int],
    ) -> DocumentLists | None:
        """Join the lists of several data sets; ``None`` if no set has lists.

        Args:
            lists: the lists of each set. The queries of a set without lists get empty ones.
            n_queries: the number of queries of each set.
            first_doc_rows: the row of each set's first document in the joined corpus.
        """
        if not any(lists):
            return None
        counts = [
            np.zeros(n_lists, dtype=np.int64) if listed is None else listed.counts
            for listed, n_lists in zip(lists, n_queries, strict=True)
        ]
        doc_rows = [
            listed.doc_rows + np.int32(first_doc_row)
            for listed, first_doc_row in zip(lists, first_doc_rows, strict=True)
            if listed is not None
        ]
        return cls.from_counts(np.concatenate(counts), np.concatenate(doc_rows))

    def of_query(self, query_index: int) -> NDArray[np.int32]:
        """Return the documents of one query."""
        return self.doc_rows[self.offsets[query_index] : self.offsets[query_index + 1]]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The length of each query's list: int64 ``[n]``."""
        return np.diff(self.offsets)

    @property
    def queries(self) -> NDArray[np.int64]:
        """The query row, or query index, of each document: int64 ``[K]``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def queries_without(self) -> int:
        """The number of queries with an empty list."""
        return int((self.counts == 0).sum())


GivenNegatives = DocumentLists
"""The name in :mod:`opera.data` for negatives that came with the data."""


@dataclass(frozen=True)
class TeacherScores:
    """A teacher's scores of (query, document) pairs, sorted by query row, then document row.

    Attributes:
        query_rows: int32 ``[K]``, rows of the query table.
        doc_rows: int32 ``[K]``, rows of the corpus.
        scores: float32 ``[K]``, finite, on the teacher's scale; higher is more relevant.
    """

    query_rows: NDArray[np.int32]
    doc_rows: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def from_arrays(
        cls, query_rows: IntArray, doc_rows: IntArray, scores: FloatArray
    ) -> TeacherScores:
        """Build from parallel arrays ``[K]`` in any order. The last score of a pair counts.

        Raises:
            ValueError: for a score that is not finite.
        """
        scores = np.asarray(scores, dtype=np.float32)
        if not np.isfinite(scores).all():
            raise ValueError("scores of a teacher must be finite")
        keys = pair_keys(query_rows, doc_rows)
        order = np.argsort(keys, kind="stable")  # equal pairs stay in their order
        is_last = np.append(np.diff(keys[order]) != 0, True)[: len(order)]
        last = order[is_last]
        return cls(
            np.asarray(query_rows, dtype=np.int32)[last],
            np.asarray(doc_rows, dtype=np.int32)[last],
            scores[last],
        )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def are_cosines(self) -> bool:
        """Whether all scores are from -1 to 1, except for rounding."""
        return bool(np.abs(self.scores).max(initial=0) <= 1 + ROUNDING)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of pairs and scores, in hex."""
        arrays = (self.query_rows, self.doc_rows, self.scores)
        return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()

    def lookup(self, query_rows: IntArray, doc_rows: IntArray) -> NDArray[np.float32]:
        """Return the scores of pairs, or NaN: float32. The arrays are broadcast together."""
        wanted_keys = pair_keys(query_rows, doc_rows)
        if len(self) == 0:
            return np.full(wanted_keys.shape, np.nan, dtype=np.float32)
        positions = np.minimum(np.searchsorted(self._sorted_keys, wanted_keys), len(self) - 1)
        return np.where(
            self._sorted_keys[positions] == wanted_keys, self.scores[positions], np.float32(np.nan)
        )

    @cached_property
    def _sorted_keys(self) -> NDArray[np.int64]:
        return pair_keys(self.query_rows, self.doc_rows)
