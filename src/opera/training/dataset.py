"""The texts of a batch: rows of the sampler in, columns of text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.training.sampler import Row


def column_names(n_negatives: int) -> list[str]:
    """Name the text columns in the order the loss reads them: anchor, positive, negatives."""
    return ["anchor", "positive", *(f"negative_{number}" for number in range(1, n_negatives + 1))]


class PairDataset(Dataset[dict[str, Any]]):
    """Looks texts up in the memory-mapped tables, a whole batch at a time.

    Each item has the text columns and ``label``, ``[step, position]``, by which the loss asks the sampler for the rest.
    The collator makes them one int64 tensor ``[m, 2]``.

    Args:
        data: the texts.
        query_rows: int32 ``[n]``, the query table's row of each training query.
        n_negatives: explicit negatives per query.
        corpus_text: what of a document the model reads.
    """

    def __init__(
        self, data: RetrievalData, query_rows: NDArray[np.int32], n_negatives: int, corpus_text: CorpusText
    ) -> None:
        self.data, self.query_rows, self.corpus_text = data, query_rows, corpus_text
        self.column_names = [*column_names(n_negatives), "label"]

    def __len__(self) -> int:
        return len(self.query_rows)

    def __getitems__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the items of a batch."""
        queries = self.data.queries.texts(self.query_rows[[row.query for row in rows]], "text")
        doc_rows = np.array([row.doc_rows for row in rows], dtype=np.int64)
        documents = iter(self.data.corpus.texts(doc_rows.ravel(), self.corpus_text))
        return [
            {
                "anchor": query,
                **{name: next(documents) for name in self.column_names[1:-1]},
                "label": [row.step, row.position],
            }
            for row, query in zip(rows, queries, strict=True)
        ]
