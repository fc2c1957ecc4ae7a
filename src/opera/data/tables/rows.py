"""Tables in files, read in batches of rows; every row has a place that a message can name."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import shortened, shown
from opera.data.lines import json_objects, text_lines
from opera.data.texts import BATCH_CHARACTERS, LONGEST_TEXT

BATCH_ROWS = 20_000
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
TREC_COLUMNS = ["query_id", "iteration", "document_id", "grade"]


class Rows(NamedTuple):
    """Some rows of a table: the line of each in a text file, else its number; and Arrow arrays."""

    numbers: Sequence[int]
    columns: dict[str, pa.Array]


class TableFile(Protocol):
    """A table that can be read any number of times.

    Attributes:
        name: the file, for messages.
        short: its name alone, for notes: these are stored, and the file may be read elsewhere.
        columns: its columns, in order.
    """

    name: str
    short: str
    columns: list[str]

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows with some of the columns; raises a DataError with file, row and rule."""

    def place(self, number: int) -> str:
        """Name a row in messages, by a number of :attr:`Rows.numbers`."""


class ArrowTable:
    """A Parquet or Arrow file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.short = path, str(path), path.name
        with self._opened() as (schema, _):
            self.columns = unique_columns(self.name, list(schema.names))

    def place(self, number: int) -> str:
        """File and row."""
        return f"{self.name}, row {number}"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; a batch holds what was written together, or :data:`BATCH_ROWS` rows."""
        first = 1
        with self._opened(columns) as (_, batches):
            for batch in batches:
                batch.validate(full=True)  # a damaged file must not reach code that trusts offsets
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    part = batch.slice(start, BATCH_ROWS)
                    numbers = range(first, first + len(part))
                    yield Rows(numbers, {name: part[name] for name in columns})
                    first += len(part)

    @contextmanager
    def _opened(self, columns: Sequence[str] = ()) -> Iterator[tuple[pa.Schema, Iterable[Any]]]:
        try:
            with open_file(self.path) as file:
                if self.path.suffix.lower() == ".parquet":
                    parquet = pq.ParquetFile(file)
                    yield (
                        parquet.schema_arrow,
                        parquet.iter_batches(BATCH_ROWS, columns=list(columns)),
                    )
                elif file.peek(6)[:6] == b"ARROW1":
                    whole = pa.ipc.open_file(file)
                    yield whole.schema, map(whole.get_batch, range(whole.num_record_batches))
                else:
                    stream = pa.ipc.open_stream(file)
                    yield stream.schema, _to_the_end(stream, file)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, MemoryError):
                raise
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise DataError(f"{self.path}: cannot be read ({shortened(reason, 200)})") from None


def _to_the_end(stream: Any, file: Any) -> Iterator[pa.RecordBatch]:
    """Refuse a stream that was cut off between two batches, which Arrow takes for its end."""
    yield from stream
    file.seek(-len(END_OF_STREAM), os.SEEK_END)
    if file.read() != END_OF_STREAM:
        raise OSError("it was cut off: the mark at the end of the stream is missing")


class JsonTable:
    """A JSON Lines file. Every record is read for its columns and their types: writers that omit
    nulls make files in which a column first appears late.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.short = path, str(path), path.name
        # the line on which each type of a column's values is first seen
        self._first: dict[str, dict[type, int]] = {}
        for number, record in json_objects(path):
            for key, value in record.items():
                self._first.setdefault(key, {}).setdefault(type(value), number)
        self.columns = list(self._first)

    def place(self, number: int) -> str:
        """File and line."""
        return f"{self.name}:{number}"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; numbers become texts, and a key that a record lacks is null."""
        types = {column: self._type(column) for column in columns}

        def values() -> Iterator[tuple[int, list[Any]]]:
            for number, record in json_objects(self.path):
                place = self.place(number)
                yield (
                    number,
                    [_json_value(place, own, record.get(own), types[own]) for own in columns],
                )

        yield from _batched(values(), types)

    def check_lists(self, column: str) -> None:
        """Refuse a column that has lists on some lines and single values on others."""
        lines = self._first[column]
        if single := [lines[kind] for kind in lines if kind not in (list, type(None))]:
            raise DataError(
                f"{self.place(min(single))}: column {shown(column)} holds one value, and a list on "
                f"line {lines[list]}; write one value in every line"
            )

    def _type(self, column: str) -> pa.DataType:
        lines = {kind: line for kind, line in self._first[column].items() if kind is not type(None)}
        flag = lines.pop(bool, None)
        if flag is not None and lines:
            raise DataError(
                f"{self.place(max(flag, min(lines.values())))}: column {shown(column)} must "
                "not mix true and false with other values; write 1 and 0"
            )
        return (
            pa.list_(pa.string()) if list in lines else pa.string() if flag is None else pa.bool_()
        )


def _json_value(place: str, column: str, value: object, kind: pa.DataType) -> object:
    """A value as Arrow takes it: numbers as texts, and all as lists where the column has some."""
    if pa.types.is_list(kind) and value is not None:
        parts = value if isinstance(value, list) else [value]
        return [_json_value(place, column, part, pa.string()) for part in parts]
    if value is None or isinstance(value, str) or kind == pa.bool_():
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise DataError(
        f"{place}: column {shown(column)} must be a text, a number or a list of these, "
        f"got {shown(value)}"
    )


class DelimitedTable:
    """A CSV or TSV file, or TREC's qrels. Every value is a text: an id such as 007 stays as it is.

    In CSV, quotation marks are read as RFC 4180 has them; in the others they are part of the text.
    A file without a header has the columns 1, 2, ...

    Args:
        path: the file.
        header: decides by the first line whether it names the columns; ``None``: TREC's qrels.
        tabs: whether tabs alone separate columns, as in TSV.
    """

    def __init__(
        self, path: Path, header: Callable[[list[str]], bool] | None, *, tabs: bool = False
    ) -> None:
        self.path, self.name, self.short = path, str(path), path.name
        self.delimiter = None if header is None else "\t" if tabs else _delimiter(path)
        self._csv = not (header is None or tabs)
        first = next(self._records(), None)
        if first is None:
            raise DataError(f"{path}: is empty; it must have at least one row")
        self.first_line = first[1]
        self.has_header = header is not None and header(first[1])
        if header is None:
            self.columns = TREC_COLUMNS
        elif self.has_header:
            self.columns = unique_columns(self.name, first[1])
        else:
            self.columns = [str(at + 1) for at in range(len(first[1]))]

    def place(self, number: int) -> str:
        """File and line."""
        return f"{self.name}:{number}"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; empty lines are skipped."""
        places = [self.columns.index(column) for column in columns]
        rows = ((number, [row[at] for at in places]) for number, row in self._checked())
        yield from _batched(rows, dict.fromkeys(columns, pa.string()))

    def _checked(self) -> Iterator[tuple[int, list[str]]]:
        header, records = sorted(self.first_line) if self.has_header else [], self._records()
        if self.has_header:
            next(records)
        for number, fields in records:
            if len(fields) != len(self.columns):
                raise DataError(
                    f"{self.place(number)}: must have {len(self.columns)} columns "
                    f"({', '.join(map(shown, self.columns))}), got {len(fields)}: "
                    f"{self._shown(fields)}"
                )
            if fields[-1] in header and sorted(cell.lstrip("\ufeff") for cell in fields) == header:
                raise DataError(
                    f"{self.place(number)}: is a header again ({self._shown(fields)}), as where "
                    "files were joined; remove it, or pass the files one by one"
                )
            yield number, fields

    def _shown(self, fields: list[str]) -> str:
        return shown((self.delimiter or " ").join(fields))

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line on which each record begins, and its fields."""
        lines = text_lines(self.path, newline="")
        if not self._csv:
            for number, line in enumerate(lines, start=1):
                if (text := line.rstrip("\r\n")) and (fields := text.split(self.delimiter)):
                    yield number, fields
            return
        csv.field_size_limit(LONGEST_TEXT)
        reader = csv.reader(lines, delimiter=self.delimiter or ",", strict=True)
        number = 1
        try:
            for fields in reader:
                if fields:
                    yield number, fields
                number = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{self.place(number)}: quotation marks do not fit ({error}); a field with one "
                'stands in quotation marks, and each within it is doubled: "5"" pipe"'
            ) from None


def _delimiter(path: Path) -> str:
    """What separates the columns of a CSV file, by its first line."""
    line = next(text_lines(path), "")
    return next((sign for sign in ",;\t|" if sign in line), ",")


def is_qrels(path: Path) -> bool:
    """Whether a file begins as TREC's qrels: four columns, the second Q0 or a digit, then a grade.

    Raises:
        DataError: for a ranking, TREC's run.
    """
    line = next((line for line in text_lines(path) if line.strip()), "")
    fields = line.split()
    if len(fields) == 6 and fields[1].upper() == "Q0":
        raise DataError(
            f"{path}: is a ranking (TREC's run: QUERY Q0 DOCUMENT RANK SCORE NAME), not "
            "judgements; pass a qrels file, QUERY 0 DOCUMENT GRADE"
        )
    return (
        len(fields) == 4
        and fields[1].upper() in (*"0123456789", "Q0")
        and fields[3].removeprefix("-").isdigit()
    )


def _batched(
    rows: Iterable[tuple[int, Sequence[Any]]], types: dict[str, pa.DataType]
) -> Iterator[Rows]:
    """Collect rows of Python values into batches of bounded size."""
    numbers: list[int] = []
    values: list[Sequence[Any]] = []
    characters = 0

    def whole() -> Rows:
        columns = zip(types.items(), zip(*values, strict=True), strict=True)
        return Rows(numbers, {name: pa.array(own, kind) for (name, kind), own in columns})

    for number, row in rows:
        numbers.append(number)
        values.append(row)
        characters += sum(len(str(value)) for value in row)
        if len(numbers) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield whole()
            numbers, values, characters = [], [], 0
    if numbers:
        yield whole()


def unique_columns(place: str, names: list[str]) -> list[str]:
    """Return the names of columns; two of one name are a DataError."""
    for at, name in enumerate(names):
        if name in names[:at]:
            raise DataError(f"{place}: two columns are called {shown(name)}; rename one")
    return names
