"""The documents that negatives and false positives are drawn from: all but those without a text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray
from opera.data import RetrievalData
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
        # A place is shifted past the rows left out before it: the i-th of them stands before place left_out[i] - i.
        shift = np.searchsorted(self.left_out - np.arange(len(self.left_out)), places, side="right")
        return np.asarray(places + shift, dtype=np.int64)
