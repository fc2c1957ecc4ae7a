"""Read CSV, TSV and TREC qrels as tables. DuckDB reads the rows, and lists the rows it rejects."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.files import open_file
from opera.core.terminal import shown
from opera.data.tables import TREC_COLUMNS, Problems, TextFile, literal_sql
from opera.data.text_files import ALWAYS_UTF8, BadRow, check_characters, text_lines
from opera.data.texts import LONGEST_TEXT

PAIRS_COLUMNS = {"query", "document", "origin"}
"""The header of ``opera pairs``, which may also have ``document_id``."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
STATED_DELIMITER = re.compile(r'"?sep=([^\w\s"]|\t|\\t)"?[\r\n]*', re.IGNORECASE)
"""The first line of a file that tells a spreadsheet how columns are separated."""
LONGEST_ROW = 2**25
"""Bytes of the longest row. DuckDB reserves memory for several of them."""
QUOTES = (
    "a quotation mark has no partner; put a field with quotation marks in quotes and double the "
    'marks inside: "5"" pipe"'
)
TOO_LONG = (
    f"a row must have at most {LONGEST_ROW // 2**20} MiB; if it is shorter, a quotation mark has "
    "no partner"
)
REJECTED = """
    SELECT line AS record, list(DISTINCT error_type) AS problems, any_value(csv_line) AS text
    FROM rejected GROUP BY line ORDER BY line
"""
"""SQL: the records that DuckDB rejected. The first record of the file, such as the header, has the
number 1, and empty lines count.
"""


class DelimitedTable(TextFile):
    """A CSV or TSV file, or TREC qrels. Every value is a text, so the id 007 keeps its zeros.

    Quotation marks follow RFC 4180 in CSV. In other formats they are part of the text. A file
    without a header has the columns 1, 2, ... The table rows that DuckDB reads are 0, 1, ... A
    record that it rejects has its number in the file, with a minus sign, as its table row.

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
        lines_with_text = (pair for pair in enumerate(self.lines(), 1) if pair[1].strip())
        line, first_line = next(lines_with_text, (0, ""))
        unquoted = re.sub(r'"[^"]*"?', "", first_line)
        self.delimiter = "\t" if tabs or header is None else max(",;\t|", key=unquoted.count)
        stated = header and STATED_DELIMITER.fullmatch(first_line)
        if stated:
            self.delimiter = stated[1].replace("\\t", "\t")
        self._lines_before = line if stated else 0
        self._is_trec, self._is_quoted = header is None, not (header is None or tabs)
        self.first_line = first_line.split() if header is None else self._first_row()
        if not self.first_line:
            raise DataError(f"{path}: is empty; it must have at least one row")
        self.has_header = header is not None and header(self.first_line)
        names = self.first_line if self.has_header else map(str, range(1, 1 + len(self.first_line)))
        super().__init__(str(path), TREC_COLUMNS if header is None else list(names), path.name)
        self.has_apostrophes = {*self.columns} - {"document_id"} == PAIRS_COLUMNS
        self._rejected_records: set[int] = set()

    def _first_row(self) -> list[str]:
        """Return the fields of the first row that is not blank.

        Raises:
            DataError: if it cannot be read.
        """
        records, line = islice(self._records(strict=True), self._lines_before, None), 1
        try:
            for line, fields in records:  # noqa: B007 - for the message
                if any(map(str.strip, fields)):
                    check_characters(self.delimiter.join(fields), self.encoding)
                    return fields
        except csv.Error:
            raise DataError(f"{self.path}:{line}: {QUOTES}") from None
        except BadRow as error:
            raise DataError(f"{self.path}:{line}: {error}") from None
        return []

    def _records(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the first line and the fields of each record, also of empty lines."""
        reader, line = self._reader(self.lines(""), strict=strict), 1
        for fields in reader:
            yield line, fields
            line = reader.line_num + 1

    def _reader(self, lines: Iterable[str], *, strict: bool = False) -> Any:
        """Split lines into fields, for the header and for messages."""
        csv.field_size_limit(LONGEST_TEXT)
        quoting = csv.QUOTE_MINIMAL if self._is_quoted else csv.QUOTE_NONE
        how: dict[str, Any] = {"delimiter": self.delimiter, "quoting": quoting, "strict": strict}
        return csv.reader(
            lines, skipinitialspace=not strict and self._is_quoted, **how
        )  # as DuckDB

    def scan(self, folder: Path) -> str:
        """Return the SQL that reads all rows and the header as the columns c0, c1, ...

        ``folder`` may get a copy of the file in the form that DuckDB reads.
        """
        column_numbers = range(len(self._named_columns))
        columns = ", ".join(f"c{number}: 'VARCHAR'" for number in column_numbers)
        blank = " AND ".join(f"coalesce(blank(c{number}), true)" for number in column_numbers)
        mark = "'\"'" if self._is_quoted else "''"
        return f"""
            FROM (
                SELECT row_number() OVER () - 1 AS table_row, *
                FROM read_csv(
                    {literal_sql(str(self._readable(folder)))}, columns={{{columns}}},
                    delim={literal_sql(self.delimiter)}, quote={mark}, escape={mark}, comment='',
                    header=false, auto_detect=false, strict_mode=true,
                    store_rejects=true, rejects_table='rejected', rejects_scan='rejecting_scans',
                    rejects_limit=0, max_line_size={LONGEST_ROW}
                )
            )
            WHERE NOT ({blank}) OFFSET {self.has_header:d}"""

    @property
    def _named_columns(self) -> list[str]:
        """The columns up to the last one with a name.

        Spreadsheets write the empty cells after it in some rows only.
        """
        named = [number for number, name in enumerate(self.columns, 1) if name.strip()]
        return self.columns[: max(named, default=1)]

    def _readable(self, folder: Path) -> Path:
        """Return the file, or a copy: plain UTF-8 with tabs in TREC and one kind of line break."""
        utf8 = self.encoding in (None, ALWAYS_UTF8) and self.path.suffix.lower() in (".csv", ".tsv")
        is_pattern = bool(set("*?[") & set(str(self.path.absolute())))
        readable = utf8 and not (is_pattern or self._is_trec or self._lines_before)
        if readable and not _has_mixed_line_breaks(self.path):
            return self.path.absolute()
        copy, lines = folder / "copy.csv", self.lines()
        with copy.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            for _ in islice(lines, self._lines_before):
                file.write("\n")  # so that the numbers of the other lines stay
            for line in lines:
                file.write("\t".join(line.split()) + "\n" if self._is_trec else line)
        return copy

    def add_rejected(
        self, records: Sequence[tuple[int, list[str], str]], problems: Problems
    ) -> None:
        """Collect the records that DuckDB rejected: number, reasons and text.

        Raises:
            DataError: for a record without an end, which may hide the rows after it.
        """
        self._rejected_records = {record for record, _, _ in records}
        for record, reasons, text_of_record in records:
            text = text_of_record.strip("\r\n")
            if "LINE SIZE OVER MAXIMUM" in reasons:
                raise DataError(f"{self.location(-record)}: {TOO_LONG}")
            if "UNQUOTED VALUE" in reasons and "\n" in text:
                raise DataError(f"{self.location(-record)}: {QUOTES}")
            fields: list[str] = next(self._reader(text.splitlines(keepends=True)), [])
            if not any(map(str.strip, fields)):
                continue
            problem = self._problem(record, reasons, fields)
            problems.add_unreadable(self, -record, problem.rule, problem.value)

    def _problem(self, record: int, reasons: list[str], fields: list[str]) -> BadRow:
        """Say why DuckDB rejected a record."""
        if "INVALID ENCODING" in reasons:
            record_lines, _ = self._lines_of_records
            start, end = record_lines[record - 1], next(iter(record_lines[record:]), None)
            try:
                lines = islice(self.lines(), start - 1, end and end - 1)
                check_characters("".join(lines), self.encoding)
            except BadRow as error:
                return error
        if "UNQUOTED VALUE" in reasons:
            return BadRow(QUOTES)
        columns = self._named_columns
        text = (" " if self._is_trec else self.delimiter).join(fields)
        return BadRow(
            f"must have {len(columns)} columns ({', '.join(map(shown, columns))}), got {{}}",
            f"{len(fields)}: {shown(text)}",
        )

    def line(self, table_row: int) -> int:
        """Return the first line of a table row."""
        record_lines, row_lines = self._lines_of_records
        return int(record_lines[-table_row - 1] if table_row < 0 else row_lines[table_row])

    def lines_of(self, table_row: int) -> range:
        """Return the numbers of the lines of a table row, which may hold line breaks."""
        start, (record_lines, _) = self.line(table_row), self._lines_of_records
        following = int(np.searchsorted(record_lines, start, side="right"))
        if following < len(record_lines):
            return range(start, int(record_lines[following]))
        return range(start, 1 + sum(1 for _ in self.lines("")))

    def format_row(self, cells: Mapping[str, str]) -> str:
        """Return a new row. Tabs and line breaks become spaces if the file cannot quote them."""
        row = [cells.get(name, "") for name in self.columns]
        if self._is_trec:
            return self.delimiter.join([cell or "0" for cell in row])
        if not self._is_quoted:
            return self.delimiter.join(" ".join(cell.split()) for cell in row)
        text = io.StringIO()
        csv.writer(text, delimiter=self.delimiter, lineterminator="\r\n").writerow(row)
        return text.getvalue().removesuffix("\r\n")

    @cached_property
    def _lines_of_records(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first line of every record, and of every table row that DuckDB read."""
        records = list(self._records())
        one_column = len(self.columns) == 1  # its empty lines are rows
        was_read = [
            record > self._lines_before
            and record not in self._rejected_records
            and (one_column or bool("".join(fields).strip() if self._is_trec else fields))
            for record, (_, fields) in enumerate(records, 1)
        ]
        lines = np.array([line for line, _ in records])
        return lines, lines[np.array(was_read)]


def _has_mixed_line_breaks(path: Path) -> bool:
    """Whether a file has several kinds of line breaks, which DuckDB does not read."""
    with open_file(path) as file:
        if not any(b"\r" in part for part in iter(lambda: file.read(2**20), b"")):
            return False
    with path.open(encoding="latin-1") as lines:
        for _ in lines:
            pass
        return isinstance(lines.newlines, tuple)


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


FORMULA = r"'*[=+\-@\t\r\n]"
"""The beginning of a text that a spreadsheet may run as a formula.

OPERA writes an apostrophe before such a text in CSV and TSV files, also if the text begins with
apostrophes. When it reads such a file, it removes one apostrophe from the same texts.
"""


def with_apostrophes(table: pa.Table) -> pa.Table:
    """Return a table to write, with apostrophes before texts that a spreadsheet would run."""
    for column_number, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = pc.replace_substring_regex(table[column_number], f"^({FORMULA})", r"'\1")
            table = table.set_column(column_number, field.name, column)
    return table


def without_apostrophe_sql(text: str) -> str:
    """Return the SQL of a text that :func:`with_apostrophes` may have changed."""
    pattern = FORMULA.replace("'", "''")
    return rf"regexp_replace({text}, '^''({pattern})', '\1')"
