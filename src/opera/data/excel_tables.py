"""Read the first sheet of an Excel file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa

from opera.core.environment import EXTRAS
from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.tables import MemoryTable, Table, arrow_rows

EXCEL_SUFFIX = ".xlsx"


class ExcelTable(MemoryTable):
    """An Excel file with one sheet, whose first row names the columns. Values become texts.

    Raises:
        DataError: if the package openpyxl is missing, if the file has several sheets or no header,
            and if it cannot be read.
    """

    mark, skip, first_row = ", row {}", Table.skip, 2

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._rows() as rows:
            header = [_text(value) or "" for value in next(rows, ())]
        while header and not header[-1].strip():
            header.pop()
        if not header:
            raise DataError(f"{path}: its first row must name the columns")
        super().__init__(str(path), header, self._batches)
        self.short = path.name

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        positions = [self.columns.index(name) for name in columns]
        types = dict.fromkeys(columns, pa.string())
        with self._rows() as rows:
            next(rows, None)
            values = (
                (number, *(_text(row[p]) if p < len(row) else None for p in positions))
                for number, row in enumerate(rows)
            )
            for batch in arrow_rows(values, types):
                yield pa.record_batch(batch.columns)

    @contextmanager
    def _rows(self) -> Iterator[Iterator[tuple[Any, ...]]]:
        """Open the only sheet and yield its rows, without empty rows at the end."""
        try:
            from openpyxl import load_workbook  # an extra
            from openpyxl.utils.exceptions import InvalidFileException
        except ImportError:
            package, extra = EXTRAS["openpyxl"]
            raise DataError(
                f"{self.path}: is an Excel file; save it as CSV UTF-8, or pip install {package} "
                f"(in OPERA's extra '{extra}')"
            ) from None
        try:
            book = load_workbook(self.path, read_only=True, data_only=True)
        except (InvalidFileException, BadZipFile, KeyError, ValueError, OSError) as error:
            raise DataError(f"{self.path}: cannot be read ({shortened(str(error), 200)})") from None
        try:
            if len(book.sheetnames) > 1:
                names = ", ".join(map(shown, book.sheetnames))
                raise DataError(
                    f"{self.path}: has {len(book.sheetnames)} sheets ({names}); save the one with "
                    "the pairs as a separate file"
                )
            yield _without_empty_end(book.worksheets[0].iter_rows(values_only=True))
        finally:
            book.close()


def _without_empty_end(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows, but not the empty rows after the last row with a value."""
    empty: list[tuple[Any, ...]] = []
    for row in rows:
        if any(value is not None for value in row):
            yield from chain(empty, [row])
            empty = []
        else:
            empty.append(row)


def _text(value: Any) -> str | None:
    """Return a cell as a text; ``None`` for an empty cell."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return repr(int(value)) if float(value).is_integer() else repr(value)
