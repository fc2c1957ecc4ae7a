"""A data set of texts as training pairs: which row is which query with which document?"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs

log = logging.getLogger("opera")

LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""Columns the first of which sentence-transformers does not take for a text."""
WHOLE = ""
"""Name of a data set that is not one of several."""
ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class PairRows:
    """A data set, each row of which is a training pair: the first text column is the query, the second its positive.

    Attributes:
        name: its name among several, :data:`WHOLE` where it is the only one.
        dataset: the rows, as the trainer reads them.
        columns: the text columns, in the order the loss gets them.
        data: the distinct queries and the distinct positives.
        pairs: the N pairs of the rows, sorted by query. Rows with the same two texts stay pairs of their own.
        row_of_pair: int64 ``[N]``.
    """

    name: str
    dataset: Dataset
    columns: tuple[str, ...]
    data: RetrievalData
    pairs: TrainingPairs
    row_of_pair: NDArray[np.int64]

    @property
    def place(self) -> str:
        """What messages call it."""
        return place_of(self.name)

    def rows(self, pair_ids: IntArray) -> list[int]:
        """The rows of some pairs."""
        return [int(row) for row in self.row_of_pair[pair_ids]]

    def queries(self, pair_ids: IntArray) -> list[str]:
        """The queries of some pairs."""
        return self.data.queries.texts(self.pairs.pair_query[pair_ids], "text")


def place_of(name: str) -> str:
    """What messages call a data set."""
    return f"dataset['{name}']" if name else "dataset"


def read_all(given: Any) -> list[PairRows]:
    """Read a data set, or each of several.

    Raises:
        DataError: for anything but a ``datasets.Dataset`` or a ``DatasetDict`` of them, and for rows that are no pairs
            of texts.
    """
    if isinstance(given, IterableDataset | IterableDatasetDict):
        raise DataError(
            f"dataset: must be a datasets.Dataset, got {type(given).__name__}: methods draw any row at any step, and a "
            "stream has only the next one; load it whole, which datasets keeps on disk (streaming=False)"
        )
    parts: Mapping[str, Any] = given if isinstance(given, DatasetDict) else {WHOLE: given}
    for name, part in parts.items():
        if not isinstance(part, Dataset):
            raise DataError(
                f"{place_of(name)}: must be a datasets.Dataset or DatasetDict, got {shown(type(part))}"
            )
    if not parts:
        raise DataError("dataset: holds no data set")
    return [read(name, part) for name, part in parts.items()]


def read(name: str, dataset: Dataset) -> PairRows:
    """Read the pairs of one data set.

    Raises:
        DataError: if it has no two columns of text, no row, or a column beside the label that holds no texts.
    """
    place = place_of(name)
    label = next((column for column in LABEL_COLUMNS if column in dataset.column_names), None)
    columns = tuple(
        column for column in dataset.column_names if column not in (label, "dataset_name")
    )
    if len(columns) < 2:
        raise DataError(
            f"{place}: needs two columns of text, the query and its positive document; it has {shown(columns)}"
        )
    if len(dataset) == 0:
        raise DataError(f"{place}: has no row: nothing to train on")
    queries: dict[str, int] = {}
    documents: dict[str, int] = {}
    pair_query, pair_doc = (
        np.empty(len(dataset), dtype=np.int64),
        np.empty(len(dataset), dtype=np.int64),
    )
    digest, start = hashlib.sha256(), 0
    for batch in dataset.iter(ROWS_AT_ONCE):
        stop = start + len(batch[columns[0]])
        for column in columns[2:]:
            _refuse_other_values(batch[column], place, column, start)
        for column, numbers, into in (
            (columns[0], queries, pair_query),
            (columns[1], documents, pair_doc),
        ):
            texts = [
                _checked(text, place, column, start + at) for at, text in enumerate(batch[column])
            ]
            into[start:stop] = [numbers.setdefault(text, len(numbers)) for text in texts]
            digest.update(
                "\0".join([column, str(len(texts)), *texts]).encode("utf-8", "surrogatepass")
            )
        start = stop
    order = np.argsort(pair_query, kind="stable")
    pairs = TrainingPairs.from_arrays(pair_query[order], pair_doc[order])
    _note_repeated(place, pairs)
    data = RetrievalData(
        name=name or "dataset",
        source=place,
        fingerprint=digest.hexdigest(),
        corpus=TextTable.from_texts({str(number): text for text, number in documents.items()}),
        queries=TextTable.from_texts({str(number): text for text, number in queries.items()}),
        splits={},
    )
    return PairRows(name, dataset, columns, data, pairs, order.astype(np.int64))


def _checked(text: Any, place: str, column: str, row: int) -> str:
    if not isinstance(text, str) or not text.strip():
        raise DataError(
            f"{place}: row {row}, column {shown(column)}: must be a text that is not empty, got {shown(text)}; "
            f"the first two columns that are no label ({', '.join(LABEL_COLUMNS)}) are the query and its positive"
        )
    return text


def _refuse_other_values(values: list[Any], place: str, column: str, first: int) -> None:
    for at, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(
                f"{place}: row {first + at}, column {shown(column)}: must be a text, got {shown(value)}; columns after "
                f"the query and its positive are negatives; dataset.remove_columns({shown(column)}) leaves it out"
            )


def _note_repeated(place: str, pairs: TrainingPairs) -> None:
    keys = pairs.pair_query.astype(np.int64) * (int(pairs.pair_doc.max()) + 1) + pairs.pair_doc
    repeated = pairs.n_pairs - len(np.unique(keys))
    if repeated:
        log.info(
            "note: %s: %d rows repeat the query and positive of another row; each counts as a pair",
            place,
            repeated,
        )
