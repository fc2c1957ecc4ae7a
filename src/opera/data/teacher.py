"""What a teacher, such as a reranker, scored of the data: one score per (query, document) pair."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.data.pairs import pair_keys


@dataclass(frozen=True)
class TeacherScores:
    """Scores of some (query, document) pairs, each once, sorted by query row, then document row.

    Attributes:
        query_rows: int32 ``[K]``, rows of the query table.
        doc_rows: int32 ``[K]``, rows of the corpus.
        scores: float32 ``[K]``, finite, on the teacher's own scale; higher is more relevant.
    """

    query_rows: NDArray[np.int32]
    doc_rows: NDArray[np.int32]
    scores: NDArray[np.float32]

    @classmethod
    def from_arrays(
        cls, query_rows: IntArray, doc_rows: IntArray, scores: FloatArray
    ) -> TeacherScores:
        """Build from parallel arrays ``[K]`` in any order; of repeated pairs the last counts.

        Raises:
            ValueError: for a score that is not finite.
        """
        query, doc = np.asarray(query_rows, dtype=np.int32), np.asarray(doc_rows, dtype=np.int32)
        score = np.asarray(scores, dtype=np.float32)
        if not np.isfinite(score).all():
            raise ValueError("scores of a teacher must be finite")
        order = np.lexsort((doc, query))  # stable: equal pairs stay in their order
        query, doc = query[order], doc[order]
        last = np.append((query[1:] != query[:-1]) | (doc[1:] != doc[:-1]), True)[: len(order)]
        return cls(query[last], doc[last], score[order][last])

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of pairs and scores, in hex."""
        parts = (self.query_rows, self.doc_rows, self.scores)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def lookup(self, query_rows: IntArray, doc_rows: IntArray) -> NDArray[np.float32]:
        """Return the score of each pair, NaN where there is none: float32; both are broadcast."""
        wanted = pair_keys(query_rows, doc_rows)
        if len(self) == 0:
            return np.full(wanted.shape, np.nan, dtype=np.float32)
        at = np.minimum(np.searchsorted(self._sorted_keys, wanted), len(self) - 1)
        return np.where(self._sorted_keys[at] == wanted, self.scores[at], np.float32(np.nan))

    @cached_property
    def _sorted_keys(self) -> NDArray[np.int64]:
        return pair_keys(self.query_rows, self.doc_rows)
