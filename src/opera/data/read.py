"""Read tables in files and in memory as Arrow batches, with the place of each row for messages.

DuckDB reads valid CSV and TSV files. This module reads all other files, row by row, so that each
problem has a line number.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.problems import Problems
from opera.data.text_files import (
    ALWAYS_UTF8,
    BadRow,
    check_characters,
    has_spaces_beside_quotes,
    json_object,
    text_lines,
)
from opera.data.texts import BATCH_CHARACTERS, LONGEST_TEXT, batched

BATCH_ROWS = 20_000
BEIR_COLUMNS = {"_id", "title", "text", "metadata"}
TREC_COLUMNS = ["query_id", "iteration", "document_id", "grade"]
NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
LISTS_OF_TEXTS = pa.list_(pa.string())
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

    def __init__(self, name: str, columns: Sequence[str], short: str) -> None:
        self.name, self.columns, self.short = name, list(columns), short
        for place, column in enumerate(self.columns):
            if column.strip() and column in self.columns[:place]:
                raise DataError(f"{name}: two columns are called {shown(column)}; rename one")

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows with the requested columns; ``problems`` gets unreadable rows.

        Raises:
            DataError: if the file cannot be read.
        """
        raise NotImplementedError

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield the number of rows and their original text, or JSON."""
        for rows in self.batches(self.columns, Problems()):
            for place, number in enumerate(rows.numbers):
                if number in numbers:
                    record = {name: values[place].as_py() for name, values in rows.columns.items()}
                    yield int(number), json.dumps(record, ensure_ascii=False, default=str)

    def place(self, number: int) -> str:
        """Return the file and the number of a row, for messages."""
        return self.name + self.mark.format(number)


class TextTable(Table):
    """A table in a text file."""

    path: Path
    encoding: str | None

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield line and text of rows, and escape bytes of another encoding."""
        for number, text in self._texts():
            if number in numbers:
                escaped = text.rstrip("\r\n").encode("utf-8", "surrogateescape")
                yield number, escaped.decode("utf-8", "backslashreplace")

    def _texts(self) -> Iterator[tuple[int, str]]:
        """Yield line and text of each row."""
        return enumerate(self._lines(), start=1)

    def _lines(self, newline: str | None = None) -> Iterator[str]:
        return text_lines(self.path, newline, self.encoding, strict=False)


class JsonTable(TextTable):
    """A JSON Lines file.

    To find the columns, OPERA reads all records: if a writer omits nulls, a column may first occur
    in a late record.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path, self.encoding, problems = path, encoding, Problems()
        self._kinds: dict[str, set[type]] = {}
        """The types of the values in each column."""
        for _, record in self._records(problems):
            if not self._kinds and {"_id", "text"} <= record.keys() <= BEIR_COLUMNS:
                self._kinds = {name: {str} for name in ("_id", "title", "text")}
                break  # the files of BEIR are large, and have these columns
            for name, value in record.items():
                self._kinds.setdefault(name, set()).add(type(value))
        super().__init__(str(path), list(self._kinds), path.name)
        if not self._kinds:
            empty = DataError(f"{path}: is empty; it must have at least one row")
            raise problems.error() if problems.rows else empty

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows. Numbers become texts, and missing keys become null."""
        types = {column: self._type(column) for column in columns}

        def rows() -> Iterator[Sequence[Any]]:
            for number, record in self._records(problems):
                try:
                    values = (json_value(name, record.get(name), types[name]) for name in types)
                    yield number, *values
                except BadRow as error:
                    problems.refuse(self, number, error.rule, error.value)

        yield from arrow_rows(rows(), types)

    def _records(self, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in self._texts():
            try:
                check_characters(line, self.encoding)
                if line.strip(" \n"):
                    yield number, json_object(line.removesuffix("\n"))
            except BadRow as error:
                problems.refuse(self, number, error.rule, error.value)

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


class Record(NamedTuple):
    """A row: its first line, fields and text, and its problem, if any."""

    line: int
    fields: list[str]
    text: str
    problem: BadRow | None


class DelimitedTable(TextTable):
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
        self.delimiter = None if header is None else "\t" if tabs else self._delimiter()
        self._quoted = not (header is None or tabs)
        first = next(self._records(), None)
        if first is None:
            raise DataError(f"{path}: is empty; it must have at least one row")
        if first.problem is not None:
            raise DataError(f"{path}:{first.line}: {first.problem}")
        self.first_line = first.fields
        self.has_header = header is not None and header(self.first_line)
        names = self.first_line if self.has_header else map(str, range(1, 1 + len(self.first_line)))
        super().__init__(str(path), TREC_COLUMNS if header is None else list(names), path.name)
        self._begins_at_once = first.line == 1

    @cached_property
    def fast(self) -> bool:
        """Whether DuckDB gives the same rows as :meth:`batches`."""
        plain = self.encoding in (None, ALWAYS_UTF8) and self.delimiter is not None
        plain &= self._begins_at_once and len(self.columns) > 1
        plain &= self.path.suffix.lower() in (".csv", ".tsv")
        return plain and not (self._quoted and has_spaces_beside_quotes(self.path))

    def scan(self) -> str:
        """The SQL that reads the table with the columns c0, c1, ... All line numbers are 0."""
        columns = ", ".join(f"c{place}: 'VARCHAR'" for place in range(len(self.columns)))
        mark = "'\"'" if self._quoted else "''"
        return (
            f"(SELECT 0 AS line, * FROM read_csv({quoted(str(self.path))}, "
            f"delim={quoted(str(self.delimiter))}, quote={mark}, escape={mark}, comment='', "
            f"header=false, auto_detect=false, strict_mode=true, "
            f"columns={{{columns}}}) OFFSET {int(self.has_header)})"
        )

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows; skip empty lines."""
        places = [self.columns.index(column) for column in columns]
        rows = (
            (record.line, *(record.fields[place] for place in places))
            for record in self._checked(problems)
        )
        yield from arrow_rows(rows, dict.fromkeys(columns, pa.string()))

    def _checked(self, problems: Problems) -> Iterator[Record]:
        records = self._records()
        listed = ", ".join(map(shown, self.columns))
        if self.has_header:
            next(records)
        for record in records:
            line, fields, _, problem = record
            joined = shown((self.delimiter or " ").join(fields))
            if problem is None and len(fields) != len(self.columns):
                rule = f"must have {len(self.columns)} columns ({listed}), got {{}}"
                problem = BadRow(rule, f"{len(fields)}: {joined}")
            if problem is None:
                yield record
            else:
                problems.refuse(self, line, problem.rule, problem.value)

    def _texts(self) -> Iterator[tuple[int, str]]:
        return ((record.line, record.text) for record in self._records())

    def _records(self) -> Iterator[Record]:
        return self._quoted_records() if self._quoted else self._plain_records()

    def _plain_records(self) -> Iterator[Record]:
        for number, line in enumerate(self._lines(""), start=1):
            text = line.rstrip("\r\n")
            if not text or not (fields := text.split(self.delimiter)):
                continue
            if self.delimiter is not None or not is_comment(fields):
                yield Record(number, fields, line, self._problem_of(line))

    def _quoted_records(self) -> Iterator[Record]:
        """Yield the rows. If quotation marks do not match, yield each line of the row."""
        csv.field_size_limit(LONGEST_TEXT)
        row_lines: list[str] = []

        def lines() -> Iterator[str]:
            for line in self._lines(""):
                row_lines.append(line)
                yield line

        reader = csv.reader(lines(), delimiter=self.delimiter or ",", strict=True)
        number, unbalanced = 1, False
        while True:
            number += len(row_lines)
            row_lines.clear()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                unbalanced = True
                for line, text in enumerate(row_lines, start=number):
                    yield Record(line, [text], text, BadRow(QUOTES, error))
                continue
            text = "".join(row_lines)
            # the row may be the end of the bad row before it
            unbalanced = unbalanced and text.count('"') % 2 == 1
            problem = BadRow(QUOTES, "in a line before") if unbalanced else self._problem_of(text)
            if fields and not (number == 1 and "".join(fields) == "sep="):  # written by Excel
                yield Record(number, fields, text, problem)

    def _problem_of(self, text: str) -> BadRow | None:
        try:
            check_characters(text, self.encoding)
        except BadRow as error:
            return error
        return None

    def _delimiter(self) -> str:
        """The separator of the columns, from the first line without its quoted parts."""
        line = re.sub(r'"[^"]*"?', "", next(self._lines(), ""))
        if line.startswith("sep="):
            return line[4:5].strip() or "\t"
        return max(",;\t|", key=line.count)


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def is_qrels(path: Path, encoding: str | None = None, *, numbered: bool = False) -> bool:
    """Whether a file begins like TREC qrels: four columns, the last one a grade.

    If the user names columns by number (``numbered``), the second must be Q0 or a digit.

    Raises:
        DataError: for a TREC run.
    """
    lines = (line.strip() for line in text_lines(path, encoding=encoding, strict=False))
    line = next((line for line in lines if line and not is_comment(line.split())), "")
    fields = line.split()
    if len(fields) == 6 and fields[1].upper() == "Q0":
        raise DataError(
            f"{path}: is a TREC run (QUERY Q0 DOCUMENT RANK SCORE NAME), not judgements; "
            "pass a qrels file (QUERY 0 DOCUMENT GRADE)"
        )
    tabs = line.count("\t")  # a table has tabs
    if len(fields) != 4 or not (tabs == 0 or is_number(fields[3])):
        return False
    return fields[1].upper() in (*"0123456789", "Q0") or (tabs in (0, 3) and not numbered)


def is_comment(fields: Sequence[str]) -> bool:
    """Whether a line of TREC qrels is a comment: it begins with # and is not a judgement."""
    judgement = len(fields) == 4 and fields[0] != "#" and is_number(fields[3])
    return fields[0].startswith("#") and not judgement


def is_number(text: str) -> bool:
    """Whether a text is a decimal number."""
    return re.fullmatch(NUMBER, text) is not None


def arrow_rows(rows: Iterable[Sequence[Any]], types: Mapping[str, pa.DataType]) -> Iterator[Rows]:
    """Put rows of Python values into batches; the first value is the row number."""
    for batch in batched(rows, BATCH_ROWS, BATCH_CHARACTERS, first=1):
        numbers, *columns = zip(*batch, strict=True)
        values = zip(types.items(), columns, strict=True)
        yield Rows(numbers, {name: pa.array(column, kind) for (name, kind), column in values})
