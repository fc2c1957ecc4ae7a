"""The training pairs in the paper's terms: n queries, each with m_q positive documents."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray, concatenated_ranges

NO_PAIRS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class TrainingPairs:
    """All (query, positive document) pairs of a training set, sorted by query.

    Attributes:
        pair_query: int32 ``[N]``, the query index of each pair, in ascending order. Query indices
            are 0 to n-1, and every query has a pair.
        pair_doc: int32 ``[N]``, the corpus row of each pair's document.
        query_offsets: int64 ``[n + 1]``; query q's pairs are ``query_offsets[q]`` to
            ``query_offsets[q + 1]``.

    Examples:
        >>> pairs = opera.load_data("example:faq").training_split().pairs()
        >>> pairs.n_queries, pairs.n_pairs
        (300, 300)
    """

    pair_query: NDArray[np.int32]
    pair_doc: NDArray[np.int32]
    query_offsets: NDArray[np.int64]

    @classmethod
    def from_arrays(cls, pair_query: IntArray, pair_doc: IntArray) -> TrainingPairs:
        """Build from parallel arrays ``[N]``; ``pair_query`` is sorted and skips no number.

        Raises:
            ValueError: if it is not sorted, does not start at 0 or skips a number.
        """
        query_of_pair = np.asarray(pair_query, dtype=np.int32)
        steps = np.diff(query_of_pair, prepend=-1)
        if len(steps) == 0 or steps[0] != 1 or np.any((steps != 0) & (steps != 1)):
            raise ValueError("pair_query must be sorted, start at 0 and skip no number")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(query_of_pair))]).astype(np.int64)
        return cls(query_of_pair, np.asarray(pair_doc, dtype=np.int32), offsets)

    @property
    def n_queries(self) -> int:
        """n, the number of queries."""
        return len(self.query_offsets) - 1

    @property
    def n_pairs(self) -> int:
        """N, the number of pairs, Σ_q m_q."""
        return len(self.pair_doc)

    @property
    def fingerprint(self) -> int:
        """A checksum of the pairs."""
        return zlib.crc32(self.pair_doc.tobytes(), zlib.crc32(self.pair_query.tobytes()))

    @property
    def positives_per_query(self) -> NDArray[np.int64]:
        """m_q, the number of positive documents of each query: int64 ``[n]``."""
        return np.diff(self.query_offsets)

    def subset(self, selected: BoolArray) -> tuple[TrainingPairs, NDArray[np.int64]]:
        """Return the pairs of ``selected``, bool ``[N]``, with new query indices, and the old
        indices of their queries.
        """
        old_indices, new_indices = np.unique(self.pair_query[selected], return_inverse=True)
        pairs = TrainingPairs.from_arrays(new_indices, self.pair_doc[selected])
        return pairs, old_indices.astype(np.int64)

    def sum_by_query(self, values: FloatArray | BoolArray) -> NDArray[np.float64]:
        """Sum a value per pair ``[N]`` over each query's pairs: float64 ``[n]``."""
        return np.add.reduceat(np.asarray(values, dtype=np.float64), self.query_offsets[:-1])

    def of_queries(self, query_indices: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs of queries ``[m]``, query by query.

        Returns:
            Pair ids, int64 ``[M]``, and the offsets of the queries in them, int64 ``[m + 1]``.
        """
        starts = self.query_offsets[query_indices]
        counts = self.query_offsets[np.asarray(query_indices) + 1] - starts
        return concatenated_ranges(starts, counts), np.concatenate([[0], np.cumsum(counts)])


class DecidedPairs(NamedTuple):
    """The training pairs of a data set that a person, or another judge, decided about.

    Pairs are the ``pair_keys`` of the groups of their texts: int64, ascending.

    Attributes:
        confirmed: pairs that a decision calls correct.
        rejected: pairs that a decision calls wrong.
        removed_excess: a count of pairs that left train as wrong: those with a first rank above ½,
            minus those below.
    """

    confirmed: NDArray[np.int64] = NO_PAIRS
    rejected: NDArray[np.int64] = NO_PAIRS
    removed_excess: int = 0


def pair_keys(queries: IntArray, documents: IntArray) -> NDArray[np.int64]:
    """Encode numbers of queries and documents, such as rows or groups, as one int64 per pair.

    The keys are ordered by query, then document. The arrays are broadcast together. The numbers are
    below 2³¹.
    """
    return (np.asarray(queries, dtype=np.int64) << 32) + np.asarray(documents, dtype=np.int64)


def split_keys(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the queries and the documents of :func:`pair_keys`."""
    return keys >> 32, keys & 0xFFFFFFFF
