"""CSV and TSV files, and TREC's qrels.

Where a file has no header, its columns are called 1, 2, ... ``--columns`` may name them so.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.lines import text_lines
from opera.data.tables.readers import Batch, Rows, unique_columns
from opera.data.texts import LONGEST_TEXT

QRELS_COLUMNS = ["query_id", "iteration", "document_id", "grade"]
HEADERLESS = {2: ["id", "text"], 4: ["id", "url", "title", "text"]}
"""What the columns of a TSV without a header are: MS MARCO's collection and queries, and its documents."""


class DelimitedTable:
    """A CSV or TSV file. Every value is a text: an id such as 007 stays what it is.

    In CSV, quotation marks are read as RFC 4180 has them. In TSV they are part of the text.

    Args:
        path: the file.
        tabs: whether it is a TSV file.
        header: decides by the cells of the first line whether they are the names of columns.
        split: as of :class:`TableFile`.

    Raises:
        DataError: if it is empty or cannot be read, or two columns have one name.
    """

    def __init__(
        self, path: Path, tabs: bool, header: Callable[[list[str]], bool], split: str | None = None
    ) -> None:
        self.path, self.name, self.short, self.split = path, str(path), path.name, split
        self.notes: list[str] = []
        self._tabs, self._delimiter = tabs, "\t" if tabs else self._found_delimiter()
        first = next(self._records(), None)
        if first is None:
            raise DataError(f"{path}: is empty; it must have at least one row")
        self.first_line, self.has_header = first[1], header(first[1])
        self.columns = (
            unique_columns(self.name, first[1])
            if self.has_header
            else [str(at + 1) for at in range(len(first[1]))]
        )

    def place(self, number: int) -> str:
        """File and line."""
        return f"{self.name}:{number}"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows; empty lines are skipped."""
        width, batch = len(self.columns), Batch(self.columns, columns)
        header = sorted(self.first_line) if self.has_header else []
        records = self._records()
        if self.has_header:
            next(records)
        for number, fields in records:
            if len(fields) != width:
                raise DataError(
                    f"{self.place(number)}: must have {width} columns, as the first line has, got {len(fields)}: "
                    f"{shown(self._delimiter.join(fields))}"
                )
            if fields[-1] in header and sorted(cell.lstrip("\ufeff") for cell in fields) == header:
                raise DataError(
                    f"{self.place(number)}: is a header again ({shown(self._delimiter.join(fields))}), as where files "
                    "were joined; remove it, or pass the files one by one"
                )
            if batch.add(number, fields, sum(map(len, fields))):
                yield batch.rows()
        if batch.numbers:
            yield batch.rows()

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line on which each record begins, and its fields."""
        lines = text_lines(self.path, newline="")
        if self._tabs:
            for number, line in enumerate(lines, start=1):
                if text := line.rstrip("\r\n"):
                    yield number, text.split("\t")
            return
        csv.field_size_limit(LONGEST_TEXT)
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        number = 1
        try:
            for fields in reader:
                if fields:
                    yield number, fields
                number = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{self.place(number)}: quotation marks do not fit ({error}); a field with one stands in quotation "
                'marks, and each within it is doubled: "5"" pipe"'
            ) from None

    def other_delimiter(self) -> str:
        """Advice for a message where the first line looks as if something else separates its columns; else empty."""
        for other in ("\t", ";", "|", ","):
            if other != self._delimiter and sum(other in cell for cell in self.first_line):
                return (
                    f"; the file was split at {shown(self._delimiter)}, but its first line has {shown(other)}: "
                    "if that separates its columns, save it with commas (.csv) or tabs (.tsv)"
                )
        return ""

    def _found_delimiter(self) -> str:
        line = next(text_lines(self.path), "")
        for other in (";", "\t", "|"):
            if "," not in line and other in line:
                self.notes.append(f"{self.short}: its columns are separated by {shown(other)}")
                return other
        return ","


class QrelsTable:
    """TREC's qrels: query, iteration, document and grade, separated by white space.

    Args:
        path: the file.
        split: as of :class:`TableFile`.
    """

    def __init__(self, path: Path, split: str | None = None) -> None:
        self.path, self.name, self.short, self.split = path, str(path), path.name, split
        self.columns = ["query_id", "document_id", "grade"]

    def place(self, number: int) -> str:
        """File and line."""
        return f"{self.name}:{number}"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the judgements."""
        batch = Batch(QRELS_COLUMNS, columns)
        for number, line in enumerate(text_lines(self.path), start=1):
            fields = line.split()
            if fields and len(fields) != 4:
                raise DataError(
                    f"{self.place(number)}: must have 4 columns, QUERY 0 DOCUMENT GRADE, got {len(fields)}: "
                    f"{shown(line.rstrip())}"
                )
            if fields and batch.add(number, fields, len(line)):
                yield batch.rows()
        if batch.numbers:
            yield batch.rows()


def is_qrels(path: Path) -> bool:
    """Whether a file begins as TREC's qrels do: four columns, the second Q0 or a digit, the last a whole number.

    Raises:
        DataError: for a ranking, TREC's run.
    """
    line = next((line for line in text_lines(path) if line.strip()), "")
    fields = line.split()
    if len(fields) == 6 and fields[1].upper() == "Q0":
        raise DataError(
            f"{path}: is a ranking (TREC's run: QUERY Q0 DOCUMENT RANK SCORE NAME), not judgements; "
            "pass a qrels file, QUERY 0 DOCUMENT GRADE"
        )
    return (
        len(fields) == 4
        and fields[1].upper() in (*"0123456789", "Q0")
        and fields[3].removeprefix("-").isdigit()
    )
