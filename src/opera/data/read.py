"""Read tables in files and in memory as Arrow batches, with the place of each row for messages.

DuckDB reads most CSV and TSV files itself, see :meth:`DelimitedTable.scan`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.columns import LISTS_OF_TEXTS
from opera.data.rules import Problems, literal_sql
from opera.data.text_files import (
    ALWAYS_UTF8,
    BadRow,
    check_characters,
    has_spaces_beside_quotes,
    json_object,
    text_lines,
)
from opera.data.texts import LONGEST_TEXT, batched

BATCH_ROWS = 20_000
BEIR_COLUMNS = {"_id", "title", "text", "metadata"}
PAIRS_COLUMNS = {"query", "document", "origin"}
"""The header of ``opera pairs``, which may also have ``document_id``."""
TREC_COLUMNS = ["query_id", "iteration", "document_id", "grade"]
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
STATED_DELIMITER = re.compile(r'"?sep=([^\w\s"]|\t|\\t)"?[\r\n]*', re.IGNORECASE)
"""The first line of a file that tells a spreadsheet how columns are separated."""
STRINGS_AND_BRACES = re.compile(r'("(?:[^"\\]|\\.)*"|[{}])')
QUOTES = (
    "a quotation mark has no partner ({}); put a field with quotation marks in quotes and double "
    'the marks inside: "5"" pipe"'
)


class Rows(NamedTuple):
    """Rows of a table: line numbers in a text file, or row numbers; and Arrow arrays."""

    numbers: Sequence[int] | range
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

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield each row's number and its original text, or JSON."""
        for rows in self.batches(self.columns, Problems()):
            for place, number in enumerate(rows.numbers):
                if number in numbers:
                    record = {name: values[place].as_py() for name, values in rows.columns.items()}
                    yield int(number), json.dumps(record, ensure_ascii=False, default=str)

    def line(self, number: int) -> int:
        """Return the number of a row in messages, from its number in the relation."""
        return number

    def place(self, number: int) -> str:
        """Return the file and the number of a row, for messages."""
        return self.name + self.mark.format(self.line(number))


class TextFile(Table):
    """A table in a text file."""

    path: Path
    encoding: str | None

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield lines and their numbers, and escape bytes of another encoding."""
        for number, line in enumerate(self.lines(), start=1):
            if number in numbers:
                escaped = line.rstrip("\n").encode("utf-8", "surrogateescape")
                yield number, escaped.decode("utf-8", "backslashreplace")

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """Yield all lines."""
        return text_lines(self.path, newline, self.encoding, strict=False)


class JsonLines(TextFile):
    """A JSON Lines file of any records."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        super().__init__(str(path), [], path.name)
        self.path, self.encoding = path, encoding

    def records(self, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield line number and record; ``problems`` gets the other lines."""
        for number, line in enumerate(self.lines(), start=1):
            try:
                check_characters(line, self.encoding)
                if line.strip(" \n"):
                    yield number, json_object(line.removesuffix("\n"))
            except BadRow as error:
                problems.refuse(self, number, error.rule, error.value)


class JsonList(JsonLines):
    """A JSON file with a list of objects, such as DPR's. A row is an object."""

    mark = ", record {}"

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """Yield the text of each object. What follows the last object must be the list's end."""
        text, depth = "", 0
        for line in super().lines(newline):
            for token in STRINGS_AND_BRACES.split(line):
                text += token
                depth += (token == "{") - (token == "}")
                if token == "}" and depth == 0:
                    yield text.lstrip("[, \t\r\n")
                    text = ""
        if (rest := text.strip("[, \t\r\n")) not in ("]", ""):
            yield rest


class JsonTable(JsonLines):
    """A JSON Lines file with a row per record.

    To find the columns, OPERA reads all records: if a writer omits nulls, a column may first occur
    in a late record.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        super().__init__(path, encoding)
        self._kinds: dict[str, set[type]] = {}
        """The types of the values in each column."""
        problems = Problems()
        for _, record in self.records(problems):
            if not self._kinds and {"_id", "text"} <= record.keys() <= BEIR_COLUMNS:
                self._kinds = {name: {str} for name in ("_id", "title", "text")}
                break  # the files of BEIR are large, and have these columns
            for name, value in record.items():
                self._kinds.setdefault(name, set()).add(type(value))
        self.columns = list(self._kinds)
        if not self._kinds:
            raise problems.error_or(f"{path}: is empty; it must have at least one row")

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows. Numbers become texts, and missing keys become null."""
        types = {column: self._type(column) for column in columns}

        def rows() -> Iterator[Sequence[Any]]:
            for number, record in self.records(problems):
                try:
                    values = (json_value(name, record.get(name), types[name]) for name in types)
                    yield number, *values
                except BadRow as error:
                    problems.refuse(self, number, error.rule, error.value)

        yield from arrow_rows(rows(), types)

    def _type(self, column: str) -> pa.DataType:
        kinds = self._kinds[column] - {type(None)}
        if list in kinds:
            return LISTS_OF_TEXTS
        return pa.bool_() if kinds == {bool} else pa.string()


def json_value(column: str, value: Any, kind: pa.DataType) -> Any:
    """A value for Arrow: a number becomes a text, and a single value in a list column a list."""
    if value is None or kind == pa.bool_() or (isinstance(value, str) and kind == pa.string()):
        return value
    if kind == LISTS_OF_TEXTS:
        values = value if isinstance(value, list) else [value]
        return [json_value(column, part, pa.string()) for part in values]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise BadRow(f"column {shown(column)} must be a text or a number, got {{}}", shown(value))


class DelimitedTable(TextFile):
    """A CSV or TSV file, or TREC qrels. Every value is a text, so the id 007 keeps its zeros.

    Quotation marks follow RFC 4180 in CSV. In other formats they are part of the text. A file
    without a header has the columns 1, 2, ...

    Args:
        path: the file.
        header: decides whether the first line is a header; ``None``: TREC qrels.
        tabs: whether only tabs separate columns, as in TSV.
        encoding: the encoding of the file; ``None``: UTF-8.
    """

    def __init__(
        self,
        path: Path,
        header: Callable[[list[str]], bool] | None,
        *,
        tabs: bool = False,
        encoding: str | None = None,
    ) -> None:
        self.path, self.encoding = path, encoding
        self.scanned = False
        """Whether DuckDB read the file, so that the relation has row numbers instead of lines."""
        first_line = next(filter(str.strip, self.lines()), "")
        unquoted = re.sub(r'"[^"]*"?', "", first_line)
        delimiter = "\t" if tabs else max(",;\t|", key=unquoted.count)
        self._stated = header and STATED_DELIMITER.fullmatch(first_line)
        if self._stated:
            delimiter = self._stated[1].replace("\\t", "\t")
        self.delimiter = header and delimiter
        self._quoted = not (header is None or tabs)
        line, self.first_line, problem = next(self._records(), (0, [], None))
        if line == 0:
            raise DataError(f"{path}: is empty; it must have at least one row")
        if problem is not None:
            raise DataError(f"{path}:{line}: {problem}")
        self.has_header = header is not None and header(self.first_line)
        names = self.first_line if self.has_header else map(str, range(1, 1 + len(self.first_line)))
        super().__init__(str(path), TREC_COLUMNS if header is None else list(names), path.name)
        self._begins_at_once = line == 1
        self.has_apostrophes = {*self.columns} - {"document_id"} == PAIRS_COLUMNS

    def scan(self) -> str | None:
        """Return the SQL that reads all rows, and the header, as the columns c0, c1, ...

        For most files that :meth:`batches` would read in another way, DuckDB raises an error when
        it runs the SQL. For the others, this returns ``None``.
        """
        path = str(self.path.absolute())
        utf8 = self.encoding in (None, ALWAYS_UTF8) and self.path.suffix.lower() in (".csv", ".tsv")
        plain = utf8 and self.delimiter is not None and not set("*?[") & set(path)  # patterns
        if not plain or not self._begins_at_once or len(self.columns) == 1:
            return None
        if self._quoted and has_spaces_beside_quotes(self.path):
            return None
        columns = ", ".join(f"c{place}: 'VARCHAR'" for place in range(len(self.columns)))
        mark = "'\"'" if self._quoted else "''"
        return (
            f"FROM read_csv({literal_sql(path)}, delim={literal_sql(str(self.delimiter))}, "
            f"quote={mark}, escape={mark}, comment='', header=false, auto_detect=false, "
            f"strict_mode=true, columns={{{columns}}})"
        )

    def line(self, number: int) -> int:
        """Return the line of a row."""
        return int(self._lines_of_rows[number]) if self.scanned else number

    @cached_property
    def _lines_of_rows(self) -> IntArray:
        return np.fromiter((line for line, _, _ in self._records()), np.int64)

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows; skip empty lines."""
        places = [self.columns.index(column) for column in columns]

        def rows() -> Iterator[Sequence[Any]]:
            records, listed = self._records(), ", ".join(map(shown, self.columns))
            if self.has_header:
                next(records)
            for line, cells, problem in records:
                fields = _fitted(cells, self.columns)
                if problem is None and len(fields) != len(self.columns):
                    rule = f"must have {len(self.columns)} columns ({listed}), got {{}}"
                    joined = shown((self.delimiter or " ").join(fields))
                    problem = BadRow(rule, f"{len(fields)}: {joined}")
                if problem is None:
                    yield line, *(fields[place] for place in places)
                else:
                    problems.refuse(self, line, problem.rule, problem.value)

        yield from arrow_rows(rows(), dict.fromkeys(columns, pa.string()))

    def _records(self) -> Iterator[tuple[int, list[str], BadRow | None]]:
        """Yield the first line of each row, its fields, and its problem, if any.

        Rows without a text, which spreadsheets write as separators only, are not rows.
        """
        rows = self._quoted_rows() if self._quoted else self._plain_rows()
        for line, fields, problem in islice(rows, int(bool(self._stated)), None):
            if problem is None and not any(map(str.strip, fields)):
                continue
            try:
                check_characters((self.delimiter or " ").join(fields), self.encoding)
            except BadRow as error:
                problem = error
            yield line, fields, problem

    def _plain_rows(self) -> Iterator[tuple[int, list[str], None]]:
        for number, line in enumerate(self.lines(""), start=1):
            text = line.rstrip("\r\n")
            if text and (fields := text.split(self.delimiter)):
                yield number, fields, None

    def _quoted_rows(self) -> Iterator[tuple[int, list[str], BadRow | None]]:
        """Yield the rows. If quotation marks do not match, yield each line of the row."""
        csv.field_size_limit(LONGEST_TEXT)
        reader = csv.reader(self.lines(""), delimiter=self.delimiter or ",", strict=True)
        after_bad = False
        while True:
            first = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                after_bad = True
                for line in range(first, reader.line_num + 1):
                    yield line, [], BadRow(QUOTES, error)
                continue
            # the row may be the end of the bad row before it
            after_bad = after_bad and "".join(fields).count('"') % 2 == 1
            problem = BadRow(QUOTES, "in a line before") if after_bad else None
            if fields:
                yield first, fields, problem


def _fitted(fields: list[str], columns: list[str]) -> list[str]:
    """Drop empty fields after the last column, and add missing fields of columns without a name.

    Spreadsheets write the empty cells at the end of some rows only.
    """
    extra, missing = fields[len(columns) :], columns[len(fields) :]
    if any(map(str.strip, (*extra, *missing))):
        return fields
    return [*fields, *missing][: len(columns)]


def is_qrels(path: Path, encoding: str | None = None, *, numbered: bool = False) -> bool:
    """Whether a file begins like TREC qrels: four columns, the last one a grade.

    If the user names columns by number (``numbered``), the second must be Q0 or a digit.

    Raises:
        DataError: for a TREC run.
    """
    lines = map(str.strip, text_lines(path, encoding=encoding, strict=False))
    line = next(filter(None, lines), "")
    fields, tabs = line.split(), line.count("\t")  # a table has tabs
    if len(fields) == 6 and fields[1].upper() == "Q0":
        raise DataError(
            f"{path}: is a TREC run (QUERY Q0 DOCUMENT RANK SCORE NAME), not judgements; "
            "pass a qrels file (QUERY 0 DOCUMENT GRADE)"
        )
    if len(fields) != 4 or not (tabs == 0 or NUMBER.fullmatch(fields[3])):
        return False
    return fields[1].upper() in (*"0123456789", "Q0") or (tabs in (0, 3) and not numbered)


def arrow_rows(rows: Iterable[Sequence[Any]], types: Mapping[str, pa.DataType]) -> Iterator[Rows]:
    """Put rows of Python values into batches; the first value is the row number."""
    for batch in batched(rows):
        numbers, *columns = zip(*batch, strict=True)
        values = zip(types.items(), columns, strict=True)
        yield Rows(numbers, {name: pa.array(column, kind) for (name, kind), column in values})
