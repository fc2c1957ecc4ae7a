"""Read a user's data set as training pairs.

Numbers of several kinds occur, each with its own name:

- a *table row* is a row of the data set that the user passed;
- a *row* is a row of ``pruning.dataset``, in which a list of positives has become a row for each;
- a *pair id* is the number of a pair of the data set, from 0; the loss gets pair ids among all data
  sets, which begin at ``first_pair_id``;
- a *query* and a *document* are rows of the distinct queries and of the distinct documents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, IterableDataset, IterableDatasetDict, concatenate_datasets
from numpy.typing import NDArray
from torch import Tensor

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import counted, log, shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs, pair_keys
from opera.training.documents import KnownPositives
from opera.training.list_columns import expand_lists
from opera.training.user_texts import LABEL_COLUMNS, UserTexts

ONLY = ""
"""Name of a single data set."""


class UserPairs:
    """A data set whose rows are training pairs of a query (first text column) and its positive
    (second).

    Args:
        name: of the data set; :data:`ONLY` for a single one.
        dataset: the user's data set.
        first_pair_id: the id of its first pair among all data sets.

    Attributes:
        dataset: the rows with pair ids as the label column; -1 for rows that are not relevant. A
            list of positives becomes a row for each, a list of negatives a column for each.
        label: the user's column of labels, if there is one.
        lists: the columns that each column with lists of negatives has become.
        columns: the text columns, in the order of the loss.
        documents: int64 ``[N, c]``, each pair's positive and negatives. Equal texts have one
            number; those of ``data.corpus`` come first.
        known: the known positives of each query.
        data: the distinct queries and positives, compared without extra white space.
        pairs: the N pairs of the relevant rows, sorted by query. Repeated rows are separate pairs.
        copies: int64 ``[N]``, equal for repeated rows.
        row_of_pair: int64 ``[N]``.

    Raises:
        DataError: if the data set is empty, has fewer than two text columns, or holds values that
            are not texts.
    """

    def __init__(self, name: str, dataset: Any, first_pair_id: int) -> None:
        self.name, self.first_pair_id = name, first_pair_id
        title = f"dataset['{name}']" if name else "dataset"
        rows, texts = self._read(dataset, title)
        digests = texts.digests()
        query_of_row, queries = texts.distinct(self.columns[:1], digests[:1])
        document_of_row, documents = texts.distinct(self.columns[1:], digests[1:])
        order = np.argsort(query_of_row[0], kind="stable")
        self.row_of_pair, self.documents = rows[order], document_of_row.T[order]
        self.pairs = TrainingPairs.from_arrays(query_of_row[0][order], self.documents[:, 0])
        corpus = TextTable(documents.table.slice(0, int(self.pairs.pair_doc.max()) + 1))
        fingerprint = _fingerprint(queries, corpus)
        self.data = RetrievalData(name or "dataset", title, fingerprint, corpus, queries, {})
        self.dataset = self._with_pair_ids()
        all_texts = replace(self.data, corpus=documents)
        self.known = KnownPositives.of(all_texts, np.arange(self.pairs.n_queries), self.pairs)
        keys = pair_keys(self.pairs.pair_query, self.pairs.pair_doc)
        self.copies: NDArray[np.int64] = np.unique(keys, return_inverse=True)[1]

    def _read(self, dataset: Any, title: str) -> tuple[NDArray[np.int64], UserTexts]:
        """Find the columns of the user's data set and the rows that train; ``title`` is the data
        set in messages.

        Returns:
            The rows that train, int64 ``[N]``, and their texts.
        """
        if not isinstance(dataset, Dataset):
            raise DataError(
                f"{title}: must be a datasets.Dataset or DatasetDict, got {shown(type(dataset))}"
            )
        names = dataset.column_names
        self.label = next((column for column in LABEL_COLUMNS if column in names), None)
        text_columns = [column for column in names if column not in (self.label, "dataset_name")]
        if len(text_columns) < 2:
            raise DataError(
                f"{title}: must have two text columns, the query and its positive document, got "
                f"{shown(tuple(text_columns))}"
            )
        self._expanded, table_rows, self.lists = expand_lists(dataset, text_columns, title)
        if (total := len(self._expanded)) == 0:
            raise DataError(f"{title}: must have at least one row, got an empty data set")
        self.columns = [
            name for column in text_columns for name in self.lists.get(column, [column])
        ]
        rows = _relevant_rows(self._expanded, self.label)
        if left_out := total - len(rows):
            log.warning(
                "%s: skipped %d of %s: their label is 0",
                *(title, left_out, counted(total, "row")),
            )
        if self._expanded.format["type"] == "custom":
            relevant = self._expanded.select(rows)  # the transform may need all columns
        else:
            if self._expanded._indices is not None:  # or pruning.dataset would be another copy
                self._expanded = self._expanded.with_format(None).flatten_indices()
            texts = self._expanded.select_columns(self.columns).with_format("arrow")
            relevant = texts.select(rows)
        return rows, UserTexts(title, relevant, table_rows[rows], self.columns)

    def _with_pair_ids(self) -> Dataset:
        """Return the data set with pair ids as its label column."""
        pair_ids = np.full(len(self._expanded), -1, dtype=np.int64)
        pair_ids[self.row_of_pair] = self.first_pair_id + np.arange(self.pairs.n_pairs)
        name = self.label or LABEL_COLUMNS[0]
        texts = self._expanded.select_columns([*self.columns])
        ids = Dataset(pa.table({name: pair_ids}))
        dataset = concatenate_datasets([texts.with_format(None), ids], axis=1)
        transform = self._expanded.format["format_kwargs"].get("transform")
        if transform is not None:
            dataset.set_transform(lambda batch: {**transform(batch), name: batch[name]})
        return dataset

    def rows(self, pair_ids: IntArray) -> list[int]:
        """Return the rows of pairs in ``dataset``."""
        return list(self.row_of_pair[pair_ids].tolist())

    def labels(self, pair_ids: IntArray, device: torch.device) -> Tensor | None:
        """Return the user's labels of pairs as a tensor, or ``None`` without labels."""
        if self.label is None:
            return None
        labels = self._expanded.select_columns([self.label]).with_format(None)
        return torch.tensor(labels[self.rows(pair_ids)][self.label], device=device)


def read_all(dataset: Any) -> list[UserPairs]:
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
    data_sets, first_pair_id = list[UserPairs](), 0
    for name, rows in (dataset if isinstance(dataset, Mapping) else {ONLY: dataset}).items():
        data_sets.append(UserPairs(name, rows, first_pair_id))
        first_pair_id += data_sets[-1].pairs.n_pairs
    return data_sets


def _relevant_rows(data_set: Dataset, label: str | None) -> NDArray[np.int64]:
    """Return the rows whose label is above 0.

    All rows are relevant if no label is above 0, as in examples of sentence-transformers. They are
    also relevant if labels are lists or have fractions: then they are scores for the loss.
    """
    rows = np.arange(len(data_set))
    if label is None:
        return rows
    labels = data_set.select_columns([label]).with_format("arrow")[:][label].combine_chunks()
    kind = labels.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return rows
    values = np.asarray(labels.cast(pa.float64()).to_numpy(zero_copy_only=False))
    relevant = ~(values <= 0)
    return rows if (values % 1 > 0).any() or not relevant.any() else rows[relevant]


def _fingerprint(*tables: TextTable) -> str:
    """Return a SHA-256 of the texts of tables."""
    digest = hashlib.sha256()
    for table in tables:
        digest.update(json.dumps(len(table)).encode())
        for texts in table.table["text"].chunks:
            digest.update(json.dumps(texts.to_pylist()).encode())
    return digest.hexdigest()
