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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, IterableDataset, IterableDatasetDict, concatenate_datasets
from numpy.typing import NDArray
from torch import Tensor

from opera.core.arrays import IntArray, concatenated_ranges, distinct_numbers
from opera.core.errors import DataError
from opera.core.terminal import counted, log, shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs, pair_keys
from opera.data.texts import digests_of
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
        title: of the data set, in messages.
        dataset: the rows with pair ids as the label column; -1 for rows with label 0. A
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
        self.title = f"dataset['{name}']" if name else "dataset"
        rows = self._read(dataset)
        texts = self._texts(rows)
        digests = texts.digests()
        query_of_row, queries = texts.distinct(self.columns[:1], digests[:1])
        document_of_row, documents = texts.distinct(self.columns[1:], digests[1:])
        order = np.argsort(query_of_row[0], kind="stable")
        self.row_of_pair, self.documents = rows[order], document_of_row.T[order]
        self.pairs = TrainingPairs.from_arrays(query_of_row[0][order], self.documents[:, 0])
        corpus = TextTable(documents.table.slice(0, int(self.pairs.pair_doc.max()) + 1))
        fingerprint = _fingerprint(queries, corpus)
        self.data = RetrievalData(name or "dataset", self.title, fingerprint, corpus, queries, {})
        self.dataset = self._with_pair_ids()
        all_texts = replace(self.data, corpus=documents)
        self.known = KnownPositives.of(all_texts, np.arange(self.pairs.n_queries), self.pairs)
        keys = pair_keys(self.pairs.pair_query, self.pairs.pair_doc)
        self.copies: NDArray[np.int64] = np.unique(keys, return_inverse=True)[1]
        self._label_0 = Companions.none(self.pairs.n_queries)

    def _read(self, dataset: Any) -> NDArray[np.int64]:
        """Find the columns of the user's data set, and return the rows that are pairs, int64
        ``[N]``."""
        title = self.title
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
        self._expanded, self._table_rows, self.lists = expand_lists(dataset, text_columns, title)
        if len(self._expanded) == 0:
            raise DataError(f"{title}: must have at least one row, got an empty data set")
        self.columns = [
            name for column in text_columns for name in self.lists.get(column, [column])
        ]
        is_custom = self._expanded.format["type"] == "custom"
        if not is_custom and self._expanded._indices is not None:
            # or pruning.dataset would be another copy
            self._expanded = self._expanded.with_format(None).flatten_indices()
        return _relevant_rows(self._expanded, self.label)

    def _texts(self, rows: NDArray[np.int64]) -> UserTexts:
        """Return the texts of rows."""
        texts = self._expanded
        if texts.format["type"] != "custom":  # a transform may need all columns
            texts = texts.select_columns(self.columns).with_format("arrow")
        return UserTexts(self.title, texts.select(rows), self._table_rows[rows], self.columns)

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
        """Return the rows of pairs in ``dataset``, then the rows with label 0 of their queries."""
        label_0, _ = self._label_0.of(self.pairs.pair_query[pair_ids])
        return [*self.row_of_pair[pair_ids].tolist(), *label_0.tolist()]

    def pair_of_row(self, pair_ids: IntArray) -> NDArray[np.int64]:
        """Return the position in ``pair_ids`` of each row that :meth:`rows` returns."""
        _, positions = self._label_0.of(self.pairs.pair_query[pair_ids])
        return np.concatenate([np.arange(len(pair_ids)), positions])

    def labels(self, pair_ids: IntArray, device: torch.device) -> Tensor | None:
        """Return the user's labels of :meth:`rows` as a tensor, or ``None`` without labels."""
        if self.label is None:
            return None
        labels = self._expanded.select_columns([self.label]).with_format(None)
        return torch.tensor(labels[self.rows(pair_ids)][self.label], device=device)

    @property
    def rows_without_pair(self) -> NDArray[np.int64]:
        """The rows with label 0."""
        has_pair = np.zeros(len(self.dataset), dtype=bool)
        has_pair[self.row_of_pair] = True
        return np.flatnonzero(~has_pair)

    def skip_label_0(self) -> None:
        """Say how many rows with label 0 do not train."""
        if left_out := len(self.rows_without_pair):
            rows = counted(len(self.dataset), "row")
            log.warning("%s: skipped %d of %s: their label is 0", self.title, left_out, rows)

    def keep_label_0(self) -> None:
        """Let rows with label 0 train in the batches of their queries."""
        if not len(rows := self.rows_without_pair):
            return
        query_texts = self.data.queries.texts(np.arange(self.pairs.n_queries), "text")
        digests, order = np.unique(digests_of(query_texts, len(query_texts)), return_index=True)
        of_rows = self._texts(rows).digests()[0]
        positions = np.minimum(np.searchsorted(digests, of_rows), len(digests) - 1)
        trains = digests[positions] == of_rows
        self._label_0 = Companions.of_queries(
            rows[trains], order[positions[trains]], self.pairs.n_queries
        )
        if without := len(distinct_numbers(of_rows[~trains])):
            log.warning(
                "%s: skipped %s that have only rows with label 0",
                *(self.title, counted(without, "query")),
            )


@dataclass(frozen=True)
class Companions:
    """Rows that train in each batch of their query.

    Attributes:
        rows: int64, sorted by query.
        starts: int64 ``[queries + 1]``, the first row of each query, then their number.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def none(cls, n_queries: int) -> Companions:
        """Return no rows."""
        return cls(np.empty(0, dtype=np.int64), np.zeros(n_queries + 1, dtype=np.int64))

    @classmethod
    def of_queries(
        cls, rows: NDArray[np.int64], queries: NDArray[np.int64], n_queries: int
    ) -> Companions:
        """Group rows by their queries."""
        order = np.argsort(queries, kind="stable")
        return cls(rows[order], np.searchsorted(queries[order], np.arange(n_queries + 1)))

    def of(self, queries: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of queries, and the position of each row's query in ``queries``."""
        starts = self.starts[queries]
        counts = self.starts[queries + 1] - starts
        positions = np.repeat(np.arange(len(queries)), counts)
        return self.rows[concatenated_ranges(starts, counts)], positions


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
