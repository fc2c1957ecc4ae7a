"""Files of rows and columns, read in batches; every row has a place that a message can name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import shortened, shown
from opera.data.lines import json_objects
from opera.data.texts import BATCH_CHARACTERS

BATCH_ROWS = 20_000
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
MOST_COLUMNS = 10_000
"""Columns of a JSON Lines file: one with more has values for keys, such as ids."""


class Rows(NamedTuple):
    """Some rows of a table.

    Attributes:
        numbers: line of each row in a text file, else its number, from 1.
        columns: Arrow arrays of one length, by column.
    """

    numbers: Sequence[int]
    columns: dict[str, pa.Array]


class TableFile(Protocol):
    """A table that can be read any number of times.

    Attributes:
        name: the file, for messages.
        short: its name alone, for notes: these are stored, and the file may be read elsewhere.
        columns: its columns, in order.
        split: the split that all its rows belong to, where the file says so.
    """

    name: str
    short: str
    columns: list[str]
    split: str | None

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows with some of the columns.

        Raises:
            DataError: naming file, line or row, rule and value.
        """

    def place(self, number: int) -> str:
        """Name a row in messages, by a number of :attr:`Rows.numbers`."""


class ArrowTable:
    """A Parquet or Arrow file.

    Args:
        path: the file.
        split: as of :class:`TableFile`.

    Raises:
        DataError: if it cannot be read, or two columns have one name.
    """

    def __init__(self, path: Path, split: str | None = None) -> None:
        self.path, self.name, self.short, self.split = path, str(path), path.name, split
        with _arrow_errors(path), open_file(path) as file:
            schema = self._open(file)[0]
        self.columns = unique_columns(self.name, list(schema.names))

    def place(self, number: int) -> str:
        """File and row."""
        return f"{self.name}, row {number}"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; a batch holds what was written together, or :data:`BATCH_ROWS` rows."""
        first = 1
        with _arrow_errors(self.path), open_file(self.path) as file:
            for batch in self._open(file, columns)[1]:
                batch.validate(full=True)  # a damaged file must not reach code that trusts offsets
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    part = batch.slice(start, BATCH_ROWS)
                    yield Rows(
                        range(first, first + len(part)), {name: part[name] for name in columns}
                    )
                    first += len(part)

    def _open(
        self, file: Any, columns: Sequence[str] | None = None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        if self.path.suffix.lower() == ".parquet":
            parquet = pq.ParquetFile(file)
            return parquet.schema_arrow, parquet.iter_batches(
                BATCH_ROWS, columns=list(columns or ())
            )
        if file.peek(6)[:6] == b"ARROW1":
            whole = pa.ipc.open_file(file)
            return whole.schema, (whole.get_batch(at) for at in range(whole.num_record_batches))
        stream = pa.ipc.open_stream(file)
        return stream.schema, _to_the_end(stream, file)


def _to_the_end(stream: Any, file: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, and refuse one that was cut between two, which Arrow takes for its end."""
    yield from stream
    file.seek(-len(END_OF_STREAM), os.SEEK_END)
    if file.read() != END_OF_STREAM:
        raise OSError("it was cut off: the mark at the end of the stream is missing")


class _arrow_errors:  # noqa: N801 - reads like contextlib's own
    """Turns what Arrow raises of a damaged file into one message."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError | pa.ArrowException) and not isinstance(error, MemoryError):
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise DataError(f"{self._path}: cannot be read ({shortened(reason, 200)})") from None


class JsonTable:
    """A JSON Lines file. Every record is read for its columns and their types: writers that omit nulls make files in
    which a column first appears late.

    Args:
        path: the file.
        split: as of :class:`TableFile`.

    Raises:
        DataError: if it cannot be read, or has more than :data:`MOST_COLUMNS` columns.
    """

    def __init__(self, path: Path, split: str | None = None) -> None:
        self.path, self.name, self.short, self.split = path, str(path), path.name, split
        self._first: dict[
            str, dict[type, int]
        ] = {}  # the line on which each type of a column's values is first seen
        for number, record in json_objects(path):
            for key, value in record.items():
                self._first.setdefault(key, {}).setdefault(type(value), number)
            if len(self._first) > MOST_COLUMNS:
                raise DataError(
                    f"{self.place(number)}: the lines up to here have more than {MOST_COLUMNS:,} different keys; give "
                    "every line the same keys"
                )
        self.columns = list(self._first)

    def place(self, number: int) -> str:
        """File and line."""
        return f"{self.name}:{number}"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; numbers become texts, and a key that a record lacks is null."""
        batch = Batch(columns, columns, [self._type(column) for column in columns])
        for number, record in json_objects(self.path):
            values = [self._value(number, column, record.get(column)) for column in columns]
            if batch.add(number, values, sum(len(str(value)) for value in values)):
                yield batch.rows()
        if batch.numbers:
            yield batch.rows()

    def check_lists(self, column: str) -> None:
        """Check that a column of lists holds nothing else.

        Raises:
            DataError: naming a line with a single value.
        """
        lines = self._first[column]
        if single := [lines[kind] for kind in lines if kind not in (list, type(None))]:
            raise DataError(
                f"{self.place(min(single))}: column {shown(column)} holds one value, and a list on line {lines[list]}; "
                "write one value in every line"
            )

    def _type(self, column: str) -> pa.DataType:
        lines = {kind: line for kind, line in self._first[column].items() if kind is not type(None)}
        if bool in lines and len(lines) > 1:
            flag = lines.pop(bool)
            raise DataError(
                f"{self.place(max(flag, min(lines.values())))}: column {shown(column)} must not mix true and false "
                "with other values; write 1 and 0"
            )
        return (
            pa.list_(pa.string()) if list in lines else pa.bool_() if bool in lines else pa.string()
        )

    def _value(self, number: int, column: str, value: object) -> object:
        if value is not None and type(value) not in self._first[column]:
            raise DataError(f"{self.name}: changed while it was read; run the command again")
        if isinstance(value, bool):
            return value
        if isinstance(value, list):
            return [self._scalar(number, column, part) for part in value]
        return self._scalar(number, column, value)

    def _scalar(self, number: int, column: str, value: object) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value)
        raise DataError(
            f"{self.place(number)}: column {shown(column)} must be a text, a number or a list of these, "
            f"got {shown(value)}"
        )


class Batch:
    """Collects rows of Python values into batches of bounded size.

    Args:
        names: of the values of a row.
        wanted: those to keep.
        types: of the values; texts by default.
    """

    def __init__(
        self,
        names: Sequence[str],
        wanted: Sequence[str],
        types: Sequence[pa.DataType] | None = None,
    ) -> None:
        self._wanted = [(name, names.index(name)) for name in wanted]
        self._types = types or [pa.string()] * len(names)
        self.numbers: list[int] = []
        self._values: list[Sequence[Any]] = []
        self._characters = 0

    def add(self, number: int, values: Sequence[Any], characters: int) -> bool:
        """Add a row of about so many characters; whether the batch is full."""
        self.numbers.append(number)
        self._values.append(values)
        self._characters += characters
        return len(self.numbers) == BATCH_ROWS or self._characters >= BATCH_CHARACTERS

    def rows(self) -> Rows:
        """Return the rows, and start anew."""
        columns = list(zip(*self._values, strict=True))
        rows = Rows(
            self.numbers, {name: _array(columns[at], self._types[at]) for name, at in self._wanted}
        )
        self.numbers, self._values, self._characters = [], [], 0
        return rows


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind):
        values = [
            value if value is None or isinstance(value, list) else [value] for value in values
        ]
    return pa.array(values, kind)


def unique_columns(place: str, names: list[str]) -> list[str]:
    """Return the names of columns.

    Raises:
        DataError: if one occurs twice.
    """
    for at, name in enumerate(names):
        if name in names[:at]:
            raise DataError(f"{place}: two columns are called {shown(name)}; rename one")
    return names
