"""What every table has in common: rows as Arrow batches with their numbers, and the rows that break
rules; and the tables that consist of Arrow batches: Parquet and Arrow files, and tables in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import DataError
from opera.core.files import open_file
from opera.core.terminal import shortened, shown
from opera.data.text_files import text_lines
from opera.data.texts import batched

BATCH_ROWS = 20_000
BEIR_COLUMNS = {"_id", "title", "text", "metadata"}
TREC_COLUMNS = ["query_id", "iteration", "document_id", "grade"]
FEW_ROWS, MOST_LEFT_OUT = 20, 0.5
"""Largest number and fraction of rows to leave out. If more are bad, the options are probably
wrong."""
_VALUE = re.compile(r"(, got)? ?\(?\{\}\)?")


class Rows(NamedTuple):
    """Rows of a table: their table rows, which are lines in a JSON file; and Arrow arrays."""

    table_rows: Sequence[int] | range
    columns: dict[str, pa.Array]


class Table:
    """A table that can be read any number of times.

    Args:
        name: the path of the file, for messages.
        columns: its columns, in order.
        short: its name without folders, for notes. The cache stores notes, and files may move.
    """

    mark = ":{}"
    """The number of a row in messages, after the name of the file."""
    skip = "--skip-bad-rows"
    """The option that leaves out rows that break a rule."""
    first_line: Sequence[str] = ()
    """The first line, if it may lack a header."""
    has_apostrophes = False
    """Whether OPERA wrote the table, with apostrophes before texts that look like formulas."""

    def __init__(self, name: str, columns: Sequence[str], short: str) -> None:
        self.name, self.columns, self.short = name, list(columns), short
        for column, following in pairwise(sorted(filter(str.strip, columns))):
            if column == following:
                raise DataError(f"{name}: two columns are called {shown(column)}; rename one")

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows with the requested columns; ``problems`` gets unreadable rows.

        Raises:
            DataError: if the file cannot be read.
        """
        raise NotImplementedError

    def originals(self, table_rows: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield table rows, and their original texts or JSON."""
        for rows in self.batches(self.columns, Problems()):
            for position, table_row in enumerate(rows.table_rows):
                if table_row in table_rows:
                    record = {
                        name: values[position].as_py() for name, values in rows.columns.items()
                    }
                    yield int(table_row), json.dumps(record, ensure_ascii=False, default=str)

    def line(self, table_row: int) -> int:
        """Return the number of a table row in messages, such as its line in the file."""
        return table_row

    def location(self, table_row: int) -> str:
        """Return the file and the number of a table row, for messages."""
        return self.name + self.mark.format(self.line(table_row))


class TextFile(Table):
    """A table in a text file."""

    path: Path
    encoding: str | None

    def originals(self, line_numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield lines and their numbers, and escape bytes of another encoding."""
        for line_number, line in enumerate(self.lines(), start=1):
            if line_number in line_numbers:
                escaped = line.rstrip("\n").encode("utf-8", "surrogateescape")
                yield line_number, escaped.decode("utf-8", "backslashreplace")

    def lines_of(self, table_row: int) -> range:
        """Return the numbers of the lines of a table row."""
        return range(table_row, table_row + 1)

    def format_row(self, cells: Mapping[str, str]) -> str:
        """Return a new row with some cells, by column, as a text without a line break."""
        raise NotImplementedError

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """Yield all lines."""
        return text_lines(self.path, newline, self.encoding, strict=False)


class Problems:
    """The rows that break rules.

    Args:
        skip: whether to leave out rows that break a rule; ``None``: the source has no such option.
    """

    def __init__(self, skip: bool | None = None) -> None:
        self.skip = skip
        self.rows_by_rule: dict[str, dict[Table, set[int]]] = {}
        """The table rows that break each rule, by table."""
        self._first: dict[str, tuple[Table, int, str]] = {}
        self._read: dict[Table, int] = {}

    def count(self, table: Table, n_rows: int) -> None:
        """Count rows of a table."""
        self._read[table] = self._read.get(table, 0) + n_rows

    def add(self, table: Table, table_rows: Collection[int], rule: str, value: object = "") -> None:
        """Add rows that break a rule. The first row's ``value`` replaces ``{}`` in the rule."""
        rows = [int(row) for row in table_rows]
        self._first.setdefault(rule, (table, rows[0], rule.replace("{}", str(value))))
        self.rows_by_rule.setdefault(rule, {}).setdefault(table, set()).update(rows)

    def add_unreadable(self, table: Table, table_row: int, rule: str, value: object) -> None:
        """Add a row that cannot be read."""
        self.count(table, 1)
        self.add(table, [table_row], rule, value)

    def broken(self, table: Table, *rules: str) -> set[int]:
        """The rows of a table that break one of the rules, by default any rule."""
        return set().union(
            *(self.rows_by_rule[rule].get(table, ()) for rule in rules or self.rows_by_rule)
        )

    def check(self) -> None:
        """Raise a DataError with all broken rules.

        If bad rows are skipped, it raises one only if they are many, and half of the rows or more.
        """
        n_broken, n_rows = self._counts()
        if self.rows_by_rule and not self.skip:
            raise self.error()
        if n_broken > max(FEW_ROWS, MOST_LEFT_OUT * n_rows):
            option = next(iter(self._read)).skip
            raise DataError(
                *self.error().lines,
                f"{option} would leave out {n_broken:,} of {n_rows:,} rows, which is too much: "
                "correct the file, or the options that say how to read it",
            )

    def error(self) -> DataError:
        """The error with all broken rules: the first bad row and the number of bad rows."""
        lines = []
        for rule, (table, table_row, text) in self._in_order():
            n_broken, n_rows = self._counts(rule)
            count = f" ({n_broken:,} of {n_rows:,} rows)" if n_broken > 1 else ""
            lines.append(f"{table.location(table_row)}: {text}{count}")
        n_broken, n_rows = self._counts()
        most = min(n_rows - 1, max(FEW_ROWS, MOST_LEFT_OUT * n_rows))  # as check
        if self.skip is False and 1 < n_broken <= most:
            option = next(iter(self._read)).skip
            lines.append(f"pass {option} to leave out these {n_broken:,} of {n_rows:,} rows")
        return DataError(*lines)

    def error_or(self, message: str) -> DataError:
        """The error with all broken rules, or with a message if no rule is broken."""
        return self.error() if self.rows_by_rule else DataError(message)

    def note(self) -> str:
        """Count the rows that are left out, by rule, with the place of the first row."""
        n_broken, n_rows = self._counts()
        rules = (
            f"{_short(rule)} ({self._counts(rule)[0]:,}, the first is "
            f"{table.short}{table.mark.format(table.line(table_row))})"
            for rule, (table, table_row, _) in self._in_order()
        )
        return shortened(f"left out {n_broken:,} of {n_rows:,} rows: {'; '.join(rules)}", 2000)

    def left_out(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield the rows that are left out. This reads every table again for the texts."""
        for table in self._read:
            rows_by_line = {table.line(table_row): table_row for table_row in self.broken(table)}
            for line, text in table.originals(rows_by_line) if rows_by_line else ():
                table_row = rows_by_line[line]
                rules = [
                    rule
                    for rule in self.rows_by_rule
                    if table_row in self.rows_by_rule[rule].get(table, ())
                ]
                yield table.short, line, "; ".join(map(_short, rules)), text

    def _in_order(self) -> list[tuple[str, tuple[Table, int, str]]]:
        """The rules with their first bad row, ordered by file and line."""
        tables = list(self._read)
        return sorted(
            self._first.items(),
            key=lambda entry: (tables.index(entry[1][0]), entry[1][0].line(entry[1][1])),
        )

    def _counts(self, *rules: str) -> tuple[int, int]:
        """The number of rows that break a rule, and the number of all rows in the same tables."""
        broken = {table: len(self.broken(table, *rules)) for table in self._read}
        return sum(broken.values()), sum(self._read[table] for table, n in broken.items() if n)


def _short(rule: str) -> str:
    """A rule without value and advice."""
    return _VALUE.sub("", rule).partition("; ")[0]


def literal_sql(text: str) -> str:
    """Quote a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def arrow_rows(rows: Iterable[Sequence[Any]], types: Mapping[str, pa.DataType]) -> Iterator[Rows]:
    """Put rows of Python values into batches; the first value is the table row."""
    for batch in batched(rows):
        table_rows, *columns = zip(*batch, strict=True)
        values = zip(types.items(), columns, strict=True)
        yield Rows(table_rows, {name: pa.array(column, kind) for (name, kind), column in values})


class MemoryTable(Table):
    """Record batches that can be read any number of times, such as those of a pyarrow table.

    Args:
        name: the name of the argument. Its rows count from 0.
        columns: the columns.
        read: yields record batches with the requested columns.
    """

    mark, skip, first_row = "[{}]", "skip_bad_rows=True", 0

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        read: Callable[[list[str]], Iterable[pa.RecordBatch]],
    ) -> None:
        super().__init__(name, columns, name)
        self._read = read

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield at most :data:`BATCH_ROWS` rows at once."""
        first_row = self.first_row
        for batch in self._read(list(columns)):
            for start in range(0, batch.num_rows, BATCH_ROWS):
                rows = batch.slice(start, BATCH_ROWS)
                yield Rows(
                    range(first_row, first_row + len(rows)), {name: rows[name] for name in columns}
                )
                first_row += len(rows)


class ArrowTable(MemoryTable):
    """A Parquet or Arrow file."""

    mark, skip, first_row = ", row {}", Table.skip, 1

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as (schema, _):
            super().__init__(str(path), schema.names, self._checked_batches)
        self.short = path.name

    def _checked_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self._opened(columns) as (_, batches):
            for batch in batches:
                batch.validate(full=True)  # a damaged file must not reach code that trusts offsets
                yield batch

    @contextmanager
    def _opened(self, columns: Sequence[str] = ()) -> Iterator[tuple[pa.Schema, Iterable[Any]]]:
        try:
            with open_file(self.path) as file:
                if self.path.suffix.lower() == ".parquet":
                    parquet = pq.ParquetFile(file)
                    batches = parquet.iter_batches(BATCH_ROWS, columns=list(columns))
                    yield parquet.schema_arrow, batches
                elif file.peek(6)[:6] == b"ARROW1":
                    reader = pa.ipc.open_file(file)
                    yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))
                else:
                    stream = pa.ipc.open_stream(file)
                    yield stream.schema, stream
        except MemoryError:
            raise
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise DataError(f"{self.path}: cannot be read ({shortened(reason, 200)})") from None
