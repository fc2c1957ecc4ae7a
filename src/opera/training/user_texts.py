"""Read the texts of a user's data set a block of rows at a time, and number the distinct ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from numpy.typing import NDArray

from opera.core.arrays import IntArray, slices
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.texts import (
    ROWS_AT_ONCE,
    TEXT_SCHEMA,
    TextTable,
    digests_of,
    first_copies,
)

LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""sentence-transformers takes the first of these columns that exists as the label."""


@dataclass(frozen=True)
class UserTexts:
    """The text columns of a data set. Only a block of its rows is ever a list of Python strings.

    A transform is called for all rows, and again for the rows in which a text is new.

    Attributes:
        title: of the data set, for messages.
        data_set: the rows that train, in the format ``arrow``, or with the user's transform.
        table_rows: int64, the table row that each of them comes from.
        columns: query, positive, negatives.
    """

    title: str
    data_set: Dataset
    table_rows: NDArray[np.int64]
    columns: list[str]

    def digests(self) -> NDArray[np.uint64]:
        """Check and hash all texts: uint64 ``[columns, rows]``.

        Raises:
            DataError: for a value that is not a text, and for an empty query or positive.
        """
        digests = np.empty((len(self.columns), len(self.data_set)), dtype=np.uint64)
        for block in slices(len(self.data_set), ROWS_AT_ONCE):
            values = self.data_set[block]
            for number, column in enumerate(self.columns):
                texts = values[column]
                if isinstance(texts, pa.ChunkedArray):
                    texts = texts.to_pylist()
                self._check(column, self.table_rows[block], texts, may_be_empty=number > 1)
                digests[number, block] = digests_of(texts, len(texts))
        return digests

    def distinct(
        self, columns: list[str], digests: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], TextTable]:
        """Number the distinct texts of columns in order of appearance, column by column; extra
        white space makes no difference.

        Args:
            columns: their names.
            digests: their texts' hashes, ``[columns, rows]``.

        Returns:
            The number of each text ``[columns, rows]``, and the distinct texts in their first
            spelling.
        """
        first, numbers = np.unique(first_copies(digests.ravel()), return_inverse=True)
        ends = len(self.data_set) * np.arange(1, len(columns))
        by_column = zip(columns, np.split(first, np.searchsorted(first, ends)), strict=True)
        batches = (
            batch for texts_of_column in by_column for batch in self._batches(*texts_of_column)
        )
        table = pa.Table.from_batches(batches, schema=TEXT_SCHEMA)
        return numbers.reshape(digests.shape), TextTable(table)

    def _batches(self, column: str, positions: IntArray) -> Iterator[pa.RecordBatch]:
        """Yield the texts of a column at positions among the texts of all columns, which become
        their ids. Texts of adjacent rows share the memory of the user's data set."""
        data_set = self.data_set.select(positions % len(self.data_set))
        for block in slices(len(positions), ROWS_AT_ONCE):
            texts = data_set[block][column]
            if isinstance(texts, pa.ChunkedArray):
                one_chunk = texts.num_chunks == 1  # combining copies even a single chunk
                texts = texts.chunk(0) if one_chunk else texts.combine_chunks()
            else:
                texts = pa.array(texts, pa.string())
            ids, titles = pa.array(positions[block]), pa.repeat("", len(texts))
            yield pa.record_batch(
                [ids.cast(pa.string()), titles, texts.cast(pa.string())], schema=TEXT_SCHEMA
            )

    def _check(
        self, column: str, table_rows: IntArray, texts: list[Any], may_be_empty: bool
    ) -> None:
        """Raise a :class:`DataError` for the first value of a column that is not a text."""
        rule = "a text" if may_be_empty else "a text that is not empty"
        for table_row, text in zip(table_rows.tolist(), texts, strict=True):
            if not isinstance(text, str) or not (may_be_empty or text.strip()):
                raise DataError(
                    f"{self.title}: row {table_row}, column {column!r}: must be {rule}, got "
                    f"{shown(text)}; except for a label ({', '.join(LABEL_COLUMNS)}), the columns "
                    "are the query, its positive, then negatives; remove columns with "
                    "dataset.remove_columns, rows with dataset.filter"
                )
