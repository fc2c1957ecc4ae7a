"""Read the rows of a user's data set as training pairs, and add pair ids to the rows."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, IterableDataset, IterableDatasetDict, concatenate_datasets
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import counted, shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs, pair_keys
from opera.data.texts import without_extra_space
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import with_separate_settings

log = logging.getLogger("opera")

LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""sentence-transformers takes the first of these columns that exists as the label."""
ONLY = ""
"""Name of a single data set."""
Prompts = str | Mapping[str, Any] | None
"""``args.prompts``: one prompt, or prompts by column, by data set, or by data set and column."""


@dataclass(frozen=True)
class PairRows:
    """A data set whose rows are training pairs of a query (first text column) and its positive
    (second).

    Attributes:
        name: of the data set; :data:`ONLY` for a single one.
        dataset: the user's rows.
        label: the user's label column, if there is one.
        columns: the text columns, in the order of the loss.
        data: the distinct queries and positives, compared without extra white space.
        pairs: the N pairs of the relevant rows, sorted by query. Repeated rows are separate pairs.
        row_of_pair: int64 ``[N]``.
    """

    name: str
    dataset: Dataset
    label: str | None
    columns: tuple[str, ...]
    data: RetrievalData
    pairs: TrainingPairs
    row_of_pair: NDArray[np.int64]

    def rows(self, pair_ids: IntArray) -> list[int]:
        """Return the rows of pairs."""
        return [int(row) for row in self.row_of_pair[pair_ids]]

    def labels(self, pair_ids: IntArray) -> Tensor | None:
        """Return the user's labels of pairs as a tensor, or ``None`` without labels."""
        if self.label is None:
            return None
        labels = self.dataset.select_columns([self.label]).with_format(None)
        return torch.tensor(labels[self.rows(pair_ids)][self.label])

    def with_ids(self, first: int) -> Dataset:
        """Return the data set with pair ids from ``first`` on as its label column.

        Rows that are not relevant have -1.
        """
        pair_ids = np.full(len(self.dataset), -1, dtype=np.int64)
        pair_ids[self.row_of_pair] = np.arange(first, first + self.pairs.n_pairs)
        name, texts = self.label or LABEL_COLUMNS[0], self.dataset.select_columns([*self.columns])
        ids = Dataset(pa.table({name: pair_ids}))
        dataset = concatenate_datasets([texts.with_format(None), ids], axis=1)
        transform = self.dataset.format["format_kwargs"].get("transform")
        if transform is not None:
            dataset.set_transform(lambda batch: {**transform(batch), name: batch[name]})
        return dataset

    def encode(self, model: SentenceTransformer, prompts: Prompts) -> tuple[Vectors, Vectors]:
        """Encode the distinct queries and documents with the prompts of training, or read the
        cache."""
        was_training, encoder = model.training, Encoder(with_separate_settings(model))
        encoder.model.similarity_fn_name = "cosine"
        query, document = (prompt_of(prompts, self.name, column) for column in self.columns[:2])
        encoder.prompts = {"query": query, "document": document}
        queries = encoder.encode_queries(self.data, np.arange(len(self.data.queries)))
        documents = encoder.encode_corpus(self.data, "text")
        model.train(was_training)
        return queries, documents


def read_all(dataset: Any) -> list[PairRows]:
    """Read a data set, or a dictionary of data sets.

    Raises:
        DataError: for an object of another class, and for rows that are not pairs of texts.
    """
    if isinstance(dataset, IterableDataset | IterableDatasetDict):
        raise DataError(
            f"dataset: must be a datasets.Dataset, got {type(dataset).__name__}: a method "
            "samples any row at any step, which a stream cannot give; load the data set with "
            "streaming=False"
        )
    parts = dict(dataset) if isinstance(dataset, Mapping) else {ONLY: dataset}
    if not parts:
        raise DataError("dataset: must hold at least one data set, got an empty dictionary")
    return [read(name, part) for name, part in parts.items()]


def read(name: str, dataset: Any) -> PairRows:
    """Read the pairs of one data set.

    Raises:
        DataError: if the data set is empty, has fewer than two text columns, or holds values that
            are not texts.
    """
    place = f"dataset['{name}']" if name else "dataset"
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{place}: must be a datasets.Dataset or DatasetDict, got {shown(type(dataset))}"
        )
    names = dataset.column_names
    label = next((column for column in LABEL_COLUMNS if column in names), None)
    columns = tuple(column for column in names if column not in (label, "dataset_name"))
    if len(columns) < 2:
        raise DataError(
            f"{place}: must have two text columns, the query and its positive document, got "
            f"{shown(columns)}"
        )
    if len(dataset) == 0:
        raise DataError(f"{place}: must have at least one row, got an empty data set")
    rows = _relevant_rows(dataset, label)
    if left_out := len(dataset) - len(rows):
        rows_text = counted(len(dataset), "row")
        log.warning("%s: skipped %d of %s: their label is 0", place, left_out, rows_text)
    texts = dataset[rows]
    for column in columns:
        may_be_empty = column not in columns[:2]
        for row, text in zip(rows.tolist(), texts[column], strict=True):
            if not isinstance(text, str) or not (may_be_empty or text.strip()):
                raise DataError(
                    f"{place}: row {row}, column {column!r}: must be a text"
                    f"{'' if may_be_empty else ' that is not empty'}, got {shown(text)}; except "
                    f"for a label ({', '.join(LABEL_COLUMNS)}), the columns are the query, its "
                    "positive, then negatives; remove columns with dataset.remove_columns, rows "
                    "with dataset.filter"
                )
    pair_query, queries = _distinct(texts[columns[0]])
    pair_doc, corpus = _distinct(texts[columns[1]])
    order = np.argsort(pair_query, kind="stable")
    pairs = TrainingPairs.from_arrays(pair_query[order], pair_doc[order])
    if repeated := pairs.n_pairs - len(np.unique(pair_keys(pair_query, pair_doc))):
        note = "repeating the query and positive of another row, each counted as a separate pair"
        log.info("note: %s: %s %s", place, counted(repeated, "row"), note)
    content = json.dumps([texts[column] for column in columns[:2]])
    fingerprint = hashlib.sha256(content.encode()).hexdigest()
    data = RetrievalData(name or "dataset", place, fingerprint, corpus, queries, {})
    return PairRows(name, dataset, label, columns, data, pairs, rows[order])


def _distinct(texts: list[str]) -> tuple[NDArray[np.int64], TextTable]:
    """Number distinct texts in order of appearance; extra white space makes no difference.

    Returns:
        The number of each text, and the distinct texts in their first spelling.
    """
    spaced = pa.array(map(without_extra_space, texts), pa.string()).dictionary_encode()
    numbers = spaced.indices.to_numpy().astype(np.int64)
    _, first = np.unique(numbers, return_index=True)
    table = {str(number): texts[row] for number, row in enumerate(first.tolist())}
    return numbers, TextTable.from_texts(table)


def _relevant_rows(dataset: Dataset, label: str | None) -> NDArray[np.int64]:
    """Return the rows whose label is above 0.

    All rows are relevant if no label is above 0, as in examples of sentence-transformers. They are
    also relevant if labels are lists or have fractions: then they are scores for the loss.
    """
    rows = np.arange(len(dataset))
    if label is None:
        return rows
    labels = dataset.select_columns([label]).with_format("arrow")[:][label].combine_chunks()
    kind = labels.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return rows
    values = np.asarray(labels.cast(pa.float64()).to_numpy(zero_copy_only=False))
    relevant = ~(values <= 0)
    return rows if (values % 1 > 0).any() or not relevant.any() else rows[relevant]


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt for a column of the data set ``name``, as sentence-transformers' collator
    chooses it; empty for none."""
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        prompts = prompts.get(column)
    return prompts if isinstance(prompts, str) else ""
