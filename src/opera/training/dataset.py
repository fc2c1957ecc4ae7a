"""Look up the texts of the sampler's batches, as texts, token ids or row numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from accelerate import PartialState
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch.utils.data import Dataset

from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.settings import resolved
from opera.encoder import TokenSource
from opera.retrieval.models import reads_vectors
from opera.retrieval.prompts import ROLES, Role, prompt_for
from opera.training.build import TrainingSet
from opera.training.sampler import Batch

Collator = Callable[[list[dict[str, Any]]], dict[str, Any]]
Lookup = Callable[[IntArray], Sequence[Any]]
"""Returns the model's input for rows of the query table or of the corpus."""


class PairDataset(Dataset[dict[str, Any]]):
    """Looks up a batch at a time. An item has a column for the query, and a column per document.

    Args:
        query_rows: int32 ``[n]``, the query table's row of each training query.
        n_negatives: explicit negatives per query.
        queries: looks up queries.
        documents: looks up documents.
    """

    def __init__(
        self, query_rows: NDArray[np.int32], n_negatives: int, queries: Lookup, documents: Lookup
    ) -> None:
        self.query_rows, self.queries, self.documents = query_rows, queries, documents
        self.column_names = list(column_roles(n_negatives))

    def __len__(self) -> int:
        return len(self.query_rows)

    def __getitems__(self, batch: Batch) -> tuple[Batch, list[dict[str, Any]]]:
        """Return a batch with the items of this process."""
        queries = self.queries(self.query_rows[batch.queries[batch.local]])
        documents = iter(self.documents(batch.doc_rows[batch.local].ravel()))
        anchor, *document_columns = self.column_names
        return batch, [
            {anchor: query, **{name: next(documents) for name in document_columns}}
            for query in queries
        ]


def collate(read: tuple[Batch, list[dict[str, Any]]], collator: Collator) -> dict[str, Any]:
    """Collate the items of a batch. The loss gets the batch as its labels."""
    batch, items = read
    return {**collator(items), "label": batch}


def collate_tokens(
    items: Sequence[dict[str, Any]], prompt_lengths: Mapping[str, int | None]
) -> dict[str, Any]:
    """Turn items with token ids into columns for the loss, all on the CPU.

    Args:
        items: the rows of the batch.
        prompt_lengths: tokens of each column's prompt, for a pooling that excludes the prompt.

    Returns:
        The lists ``COLUMN_input_ids``.
    """
    columns: dict[str, Any] = {}
    for column, length in prompt_lengths.items():
        columns[f"{column}_input_ids"] = [item[column] for item in items]
        columns[f"{column}_prompt_length"] = length
    return columns


def column_roles(n_negatives: int) -> dict[str, Role]:
    """Return whether each text column holds queries or documents, in the order of the loss."""
    negatives = [f"negative_{number}" for number in range(1, n_negatives + 1)]
    return {"anchor": "query", **dict.fromkeys(["positive", *negatives], "document")}


def make_dataset(
    model: SentenceTransformer, training_set: TrainingSet, settings: TrainSettings
) -> tuple[PairDataset, Collator | None]:
    """Return the data set and its collator, which is ``None`` for that of sentence-transformers.

    The data set holds row numbers for a model that looks up vectors. Otherwise it holds token ids,
    or texts if OPERA does not know the model's tokenizer.
    """
    data, rows = training_set.data, training_set.train.query_rows
    n_negatives, corpus_text = settings.n_negatives, settings.corpus_text
    if reads_vectors(model):
        return PairDataset(rows, n_negatives, _numbers, _numbers), None
    sources = {
        role: TokenSource.of(model, data, role, prompt_for(model, role), corpus_text)
        for role in ROLES
    }
    if not all(source.suffices for source in sources.values()):
        look_up_queries = partial(data.queries.texts, corpus_text="text")
        look_up_documents = partial(data.corpus.texts, corpus_text=corpus_text)
        return PairDataset(rows, n_negatives, look_up_queries, look_up_documents), None
    sampled = resolved(settings.max_steps) * settings.queries_per_step(PartialState().num_processes)
    dataset = PairDataset(
        rows,
        n_negatives,
        sources["query"].lookup(sampled),
        sources["document"].lookup(sampled * (1 + n_negatives)),
    )
    lengths = {role: source.prompt_length for role, source in sources.items()}
    prompt_lengths = {column: lengths[role] for column, role in column_roles(n_negatives).items()}
    return dataset, partial(collate_tokens, prompt_lengths=prompt_lengths)


def _numbers(rows: IntArray) -> list[str]:
    return [str(row) for row in rows.tolist()]
