"""The texts of a batch: rows of the sampler in, columns of text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from opera.core.arrays import IntArray
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.encoder.token_ids import TokenIds
from opera.encoder.token_store import Tokens
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
        self,
        data: RetrievalData,
        query_rows: NDArray[np.int32],
        n_negatives: int,
        corpus_text: CorpusText,
    ) -> None:
        self.data, self.query_rows, self.corpus_text = data, query_rows, corpus_text
        self.column_names = [*column_names(n_negatives), "label"]

    def __len__(self) -> int:
        return len(self.query_rows)

    def __getitems__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the items of a batch."""
        queries = self._queries(self.query_rows[[row.query for row in rows]])
        doc_rows = np.array([row.doc_rows for row in rows], dtype=np.int64)
        documents = iter(self._documents(doc_rows.ravel()))
        return [
            {
                "anchor": query,
                **{name: next(documents) for name in self.column_names[1:-1]},
                "label": [row.step, row.position],
            }
            for row, query in zip(rows, queries, strict=True)
        ]

    def _queries(self, rows: IntArray) -> list[str]:
        return self.data.queries.texts(rows, "text")

    def _documents(self, rows: IntArray) -> list[str]:
        return self.data.corpus.texts(rows, self.corpus_text)


class TokenDataset(PairDataset):
    """Gives token ids in place of texts: int32 ``[tokens]`` each.

    Args:
        data: the texts.
        query_rows: int32 ``[n]``, the query table's row of each training query.
        n_negatives: explicit negatives per query.
        query_tokens: the ids of the query table's rows.
        document_tokens: the ids of the corpus's rows.
    """

    def __init__(
        self,
        data: RetrievalData,
        query_rows: NDArray[np.int32],
        n_negatives: int,
        query_tokens: Tokens,
        document_tokens: Tokens,
    ) -> None:
        super().__init__(data, query_rows, n_negatives, "title_text")
        self.query_tokens, self.document_tokens = query_tokens, document_tokens

    def _queries(self, rows: IntArray) -> list[TokenIds]:  # type: ignore[override]
        return self.query_tokens.rows(rows)

    def _documents(self, rows: IntArray) -> list[TokenIds]:  # type: ignore[override]
        return self.document_tokens.rows(rows)


@dataclass(frozen=True)
class TokenCollator:
    """Makes a batch of a :class:`TokenDataset`'s items: a list of token ids per column, as the loss takes them.

    Attributes:
        prompt_lengths: tokens of the prompt by column, for a pooling that leaves it out.
    """

    prompt_lengths: Mapping[str, int | None]

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return ``label``, int64 ``[m, 2]``, and ``COLUMN_input_ids``, which stay on the CPU."""
        batch: dict[str, Any] = {"label": torch.tensor([item["label"] for item in items])}
        for column, length in self.prompt_lengths.items():
            batch[f"{column}_input_ids"] = [item[column] for item in items]
            batch[f"{column}_prompt_length"] = length
        return batch


class RowDataset(PairDataset):
    """Gives row numbers in place of texts, for a model that looks vectors up."""

    def _queries(self, rows: IntArray) -> list[str]:
        return [str(row) for row in rows.tolist()]

    _documents = _queries
