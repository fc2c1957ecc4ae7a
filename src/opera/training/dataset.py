"""The texts of a batch: rows of pair and document numbers in, columns of text out."""

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

    Each item has the text columns and ``label``: the step, the pair's number, the bits of its float32 loss weight and
    its documents' corpus rows, which the collator turns into one int64 tensor ``[B, 3 + documents]`` for the loss.
    """

    def __init__(
        self,
        data: RetrievalData,
        query_rows: NDArray[np.int32],
        n_pairs: int,
        n_negatives: int,
        choice: CorpusText,
    ) -> None:
        self.data, self.query_rows, self.n_pairs, self.choice = data, query_rows, n_pairs, choice
        self.column_names = [*column_names(n_negatives), "label"]

    def __len__(self) -> int:
        return self.n_pairs

    def __getitems__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the items of a batch."""
        queries = self.data.queries.texts(self.query_rows[[row.query for row in rows]], "text")
        doc_rows = np.array([row.docs for row in rows], dtype=np.int64)
        weight_bits = np.array([row.weight for row in rows], dtype=np.float32).view(np.int32).tolist()
        texts = iter(self.data.corpus.texts(doc_rows.ravel(), self.choice))
        return [
            {
                "anchor": query,
                **{name: next(texts) for name in self.column_names[1:-1]},
                "label": [row.step, row.pair, bits, *row.docs],
            }
            for row, query, bits in zip(rows, queries, weight_bits, strict=True)
        ]
