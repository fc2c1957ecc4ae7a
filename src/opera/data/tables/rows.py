"""Tables in files, read in batches of rows; every row has a place that a message can name."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import shortened, shown
from opera.data.lines import json_objects, text_lines
from opera.data.texts import BATCH_CHARACTERS, LONGEST_TEXT, batched

BATCH_ROWS = 20_000
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
TREC_COLUMNS = ["query_id", "iteration", "document_id", "grade"]

Records = Callable[[], Iterator[tuple[int, dict[str, Any]]]]
"""Reads the lines of a JSON Lines file: their numbers and records."""


class Rows(NamedTuple):
    """Some rows of a table: the line of each in a text file, else its number; and Arrow arrays."""

    numbers: IntArray | range
    columns: dict[str, pa.Array]


class TableFile:
    """A table that can be read any number of times.

    Args:
        name: the file, for messages.
        columns: its columns, in order.
        short: its name alone, for notes: these are stored, and the file may be read elsewhere.
    """

    mark = ":{}"
    """How the number of a row stands behind the name of its file."""

    def __init__(self, name: str, columns: Sequence[str], short: str) -> None:
        self.name, self.columns, self.short = name, list(columns), short
        for at, column in enumerate(self.columns):
            if column in self.columns[:at]:
                raise DataError(f"{name}: two columns are called {shown(column)}; rename one")

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows with some of the columns; raises a DataError with file, row and rule."""
        raise NotImplementedError

    def place(self, number: int) -> str:
        """Name a row in messages, by a number of :attr:`Rows.numbers`."""
        return self.name + self.mark.format(number)


class ArrowTable(TableFile):
    """A Parquet or Arrow file."""

    mark = ", row {}"

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as (schema, _):
            super().__init__(str(path), schema.names, path.name)

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
                    batches = parquet.iter_batches(BATCH_ROWS, columns=list(columns))
                    yield parquet.schema_arrow, batches
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


class JsonTable(TableFile):
    """A JSON Lines file.

    Args:
        path: the file.
        types: the columns and their types. ``None``: every record is read for these, since writers
            that omit nulls make files in which a column first appears late.
        records: reads the file, where not every record is taken as it is.
    """

    def __init__(
        self,
        path: Path,
        types: Mapping[str, pa.DataType] | None = None,
        records: Records | None = None,
    ) -> None:
        self._records, self._types = records or partial(json_objects, path), types
        # the line on which each type of a column's values is first seen
        self._first: dict[str, dict[type, int]] = {}
        for number, record in self._records() if types is None else ():
            for key, value in record.items():
                self._first.setdefault(key, {}).setdefault(type(value), number)
        super().__init__(str(path), list(self._first if types is None else types), path.name)

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; numbers become texts, and a key that a record lacks is null."""
        given = self._types
        types = {own: self._type(own) if given is None else given[own] for own in columns}
        rows = (
            (number, *(self._value(number, own, record.get(own), types[own]) for own in columns))
            for number, record in self._records()
        )
        yield from _arrays(rows, types)

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
        if list in lines:
            return pa.list_(pa.string())
        return pa.string() if flag is None else pa.bool_()

    def _value(self, number: int, column: str, value: Any, kind: pa.DataType) -> Any:
        """A value as Arrow takes it: numbers as texts, and one value as a list where lists are."""
        if value is None or (isinstance(value, str) and kind == _STRING) or kind == _BOOL:
            return value
        if pa.types.is_list(kind) and (self._types is None or isinstance(value, list)):
            parts = value if isinstance(value, list) else [value]
            return [self._value(number, column, part, kind.value_type) for part in parts]
        if pa.types.is_struct(kind) and isinstance(value, dict):
            return {
                own.name: self._value(number, f"{column}.{own.name}", value.get(own.name), own.type)
                for own in kind
            }
        if kind == _STRING and isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value)
        shapes = {pa.types.is_list: "a list", pa.types.is_struct: "an object"}
        what = next((own for fits, own in shapes.items() if fits(kind)), "a text or a number")
        place = f"{self.place(number)}: column {shown(column)}"
        raise DataError(f"{place} must be {what}, got {shown(value)}")


_STRING, _BOOL = pa.string(), pa.bool_()


class DelimitedTable(TableFile):
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
        self.path = path
        self.delimiter = None if header is None else "\t" if tabs else _delimiter(path)
        self._csv = not (header is None or tabs)
        _, self.first_line = next(self._records(), (0, list[str]()))
        if not self.first_line:
            raise DataError(f"{path}: is empty; it must have at least one row")
        self.has_header = header is not None and header(self.first_line)
        columns = (
            self.first_line
            if self.has_header
            else [str(at + 1) for at in range(len(self.first_line))]
        )
        super().__init__(str(path), TREC_COLUMNS if header is None else columns, path.name)

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; empty lines are skipped."""
        places = [self.columns.index(column) for column in columns]
        rows = ((number, *(row[at] for at in places)) for number, row in self._checked())
        yield from _arrays(rows, dict.fromkeys(columns, pa.string()))

    def _checked(self) -> Iterator[tuple[int, list[str]]]:
        header, records = sorted(self.first_line) if self.has_header else [], self._records()
        if self.has_header:
            next(records)
        for number, fields in records:
            problem = ""
            if len(fields) != len(self.columns):
                listed = ", ".join(map(shown, self.columns))
                problem = f"must have {len(self.columns)} columns ({listed}), "
                problem += f"got {len(fields)}: {{}}"
            elif fields[-1] in header and sorted(own.lstrip("\ufeff") for own in fields) == header:
                problem = "is a header again ({}), as where files were joined; remove it, or "
                problem += "pass the files one by one"
            if problem:
                line = shown((self.delimiter or " ").join(fields))
                raise DataError(f"{self.place(number)}: {problem.replace('{}', line)}")
            yield number, fields

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
                f"{self.path}:{number}: quotation marks do not fit ({error}); a field with one "
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
    fields = next((line for line in text_lines(path) if line.strip()), "").split()
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


def _arrays(rows: Iterable[Sequence[Any]], types: Mapping[str, pa.DataType]) -> Iterator[Rows]:
    """Bring rows of Python values, each behind the number of its row, into batches."""
    for batch in batched(rows, BATCH_ROWS, BATCH_CHARACTERS, first=1):
        numbers, *columns = zip(*batch, strict=True)
        values = zip(types.items(), columns, strict=True)
        arrays = {name: pa.array(own, kind) for (name, kind), own in values}
        yield Rows(np.array(numbers), arrays)
