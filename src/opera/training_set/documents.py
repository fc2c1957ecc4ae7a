"""Which documents may be drawn for which training query: those with a text that are no known
positive of it; and lists of them.
"""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True)
class Lists:
    """Documents listed per training query, such as mined ones.

    Attributes:
        offsets: int64 ``[n + 1]``; query q's list is ``offsets[q]`` to ``offsets[q + 1]``.
        doc_rows: int32 ``[K]``, corpus rows.
    """

    offsets: NDArray[np.int64]
    doc_rows: NDArray[np.int32]

    @classmethod
    def from_counts(cls, counts: IntArray, doc_rows: IntArray) -> Lists:
        """Build from the length of each list, int ``[n]``, and their corpus rows ``[K]``."""
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(offsets, np.asarray(doc_rows).astype(np.int32))

    @classmethod
    def of(cls, lists: Sequence[IntArray]) -> Lists:
        """Build from one array of corpus rows per query."""
        rows = np.concatenate([np.empty(0, dtype=np.int32), *lists])
        return cls.from_counts(np.array([len(own) for own in lists], dtype=np.int64), rows)

    def of_query(self, query: int) -> NDArray[np.int32]:
        """The documents of one query."""
        return self.doc_rows[self.offsets[query] : self.offsets[query + 1]]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Length of each query's list: int64 ``[n]``."""
        return np.diff(self.offsets)

    @property
    def queries(self) -> NDArray[np.int64]:
        """The training query of each document: int64 ``[K]``."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def queries_without(self) -> int:
        """How many queries have an empty list."""
        return int((self.counts == 0).sum())


CHUNK_KEYS = 2**16


@dataclass(frozen=True)
class KnownPositives:
    """All labelled positives of the training queries.

    Attributes:
        keys: int64, ascending, one of ``pair_keys`` per pair: 8 bytes.
    """

    keys: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        pairs: TrainingPairs,
        query_rows: IntArray | None = None,
        held_out: Qrels | None = None,
    ) -> KnownPositives:
        """The training pairs; and more positives of the same queries, which do not train.

        ``query_rows``, int ``[n]``, ascending, are the query table's rows of the training queries;
        ``held_out`` needs them.
        """
        keys = pair_keys(pairs.pair_query, pairs.pair_doc)
        if held_out is not None and query_rows is not None:
            left = held_out.select_queries(np.isin(held_out.query_rows, query_rows))
            queries = np.searchsorted(query_rows, left.query_rows[left.query_index])
            keys = np.concatenate([keys, pair_keys(queries, left.doc_rows)])
        return cls(np.sort(keys))

    def without(self, queries: IntArray, docs: IntArray) -> KnownPositives:
        """Forget some pairs: training queries ``[m]`` and their corpus rows ``[m]``."""
        return KnownPositives(np.setdiff1d(self.keys, pair_keys(queries, docs)))

    def contains(self, queries: IntArray, docs: IntArray) -> NDArray[np.bool_]:
        """Return whether documents are known positives of queries; the two arrays are broadcast
        together.
        """
        wanted = pair_keys(queries, docs)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.asarray(self.keys[at] == wanted)

    def among(self, docs: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the known positives among a few documents ``[c]``, ascending, going through all
        pairs once.

        Returns:
            The query of each one found, ascending, and the place of its document in ``docs``: both
            int64 ``[m]``.
        """
        found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        for start in range(0, len(self.keys), CHUNK_KEYS):
            queries, documents = split_keys(self.keys[start : start + CHUNK_KEYS])
            places = np.minimum(np.searchsorted(docs, documents), len(docs) - 1)
            hit = docs[places] == documents
            found.append((queries[hit], places[hit]))
        queries, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return queries, places
