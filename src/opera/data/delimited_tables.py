"""Read CSV, TSV and TREC qrels as tables.

DuckDB reads most CSV and TSV files itself, see :meth:`DelimitedTable.scan`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.rules import literal_sql
from opera.data.tables import TREC_COLUMNS, Problems, Rows, TextFile, arrow_rows
from opera.data.text_files import (
    ALWAYS_UTF8,
    BadRow,
    check_characters,
    has_spaces_beside_quotes,
    text_lines,
)
from opera.data.texts import LONGEST_TEXT

PAIRS_COLUMNS = {"query", "document", "origin"}
"""The header of ``opera pairs``, which may also have ``document_id``."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
STATED_DELIMITER = re.compile(r'"?sep=([^\w\s"]|\t|\\t)"?[\r\n]*', re.IGNORECASE)
"""The first line of a file that tells a spreadsheet how columns are separated."""
QUOTES = (
    "a quotation mark has no partner ({}); put a field with quotation marks in quotes and double "
    'the marks inside: "5"" pipe"'
)


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
                    problem = BadRow(
                        rule, f"{len(fields)}: {shown((self.delimiter or ' ').join(fields))}"
                    )
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
    return [*fields, *([""] * len(missing))][: len(columns)]


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
