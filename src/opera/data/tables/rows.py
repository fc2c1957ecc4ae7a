"""Tables in files, read in batches of rows; every row has a place that a message can name."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.encodings import advice_on
from opera.data.lines import HALF_CHARACTER, BadRow, json_object, text_lines
from opera.data.tables.problems import At, Problems
from opera.data.tables.values import NUMBER
from opera.data.texts import BATCH_CHARACTERS, LONGEST_TEXT, batched

BATCH_ROWS = 20_000
CONTROL = re.compile("[\x80-\x9f]")
"""What letters of cp1252 are in latin-1, where every byte stands for something."""
ALWAYS_UTF8 = "utf-8-sig"
"""The encoding of files of which nobody can give another."""
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
    skip = "--skip-bad-rows"
    """What leaves out rows that break a rule."""

    def __init__(self, name: str, columns: Sequence[str], short: str) -> None:
        self.name, self.columns, self.short = name, list(columns), short
        for at, column in enumerate(self.columns):
            if column.strip() and column in self.columns[:at]:
                raise DataError(f"{name}: two columns are called {shown(column)}; rename one")

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows with some of the columns; ``problems`` gets those that cannot be read.

        Raises:
            DataError: if the file itself cannot be read.
        """
        raise NotImplementedError

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield number and text of some rows, as they stand in the file, or else as JSON."""
        for rows in self.batches(self.columns, Problems()):
            for at, number in enumerate(rows.numbers):
                if number in numbers:
                    record = {name: own[at].as_py() for name, own in rows.columns.items()}
                    yield int(number), json.dumps(record, ensure_ascii=False, default=str)

    def place(self, number: int) -> str:
        """Name a row in messages, by a number of :attr:`Rows.numbers`."""
        return self.name + self.mark.format(number)


class ListedTable(TableFile):
    """Rows that Python counts from 0; ``name`` says of what."""

    mark, skip = "[{}]", "skip_bad_rows=True"


class TextFile(TableFile):
    """A table in a text file; see :func:`opera.data.lines.text_lines`."""

    path: Path
    encoding: str | None

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield line and text of some rows; bytes of another encoding are escaped."""
        for number, text in self._texts():
            if number in numbers:
                escaped = text.rstrip("\r\n").encode("utf-8", "surrogateescape")
                yield number, escaped.decode("utf-8", "backslashreplace")

    def _texts(self) -> Iterator[tuple[int, str]]:
        """Yield line and text of each row."""
        return enumerate(self._lines(), start=1)

    def _lines(self, newline: str | None = None) -> Iterator[str]:
        return text_lines(self.path, newline, self.encoding, strict=False)

    def _check_characters(self, text: str) -> None:
        """Refuse bytes of another encoding, which are halves of characters by now."""
        if not text.isascii() and (found := HALF_CHARACTER.search(text)):
            byte = f"{ord(found[0]) - 0xDC00:#04x} (character {found.start() + 1})"
            raise BadRow(self._not_in_encoding, byte)
        if self.encoding == "iso8859-1" and (found := CONTROL.search(text)):
            byte = f"{ord(found[0]):#04x} (character {found.start() + 1})"
            raise BadRow("byte {} is no character of latin-1; try --encoding cp1252", byte)

    @cached_property
    def _not_in_encoding(self) -> str:
        if self.encoding == ALWAYS_UTF8:
            return "byte {} is not UTF-8; convert the file to UTF-8"
        advice = advice_on(self.path) if self.encoding is None else "correct such lines"
        return f"byte {{}} is not {self.encoding or 'UTF-8'}; {advice}"


class JsonTable(TextFile):
    """A JSON Lines file.

    Args:
        path: the file.
        types: the columns and their types. ``None``: every record is read for these, since writers
            that omit nulls make files in which a column first appears late.
        records: reads the file, where not every record is taken as it is.
        encoding: of the file; ``None``: UTF-8.
    """

    def __init__(
        self,
        path: Path,
        types: Mapping[str, pa.DataType] | None = None,
        records: Records | None = None,
        encoding: str | None = None,
    ) -> None:
        self.path, self.encoding = path, encoding
        self._given, self._types = records, types
        # the line on which each type of a column's values is first seen
        self._first: dict[str, dict[type, int]] = {}
        problems = Problems()
        for number, record in self._records(problems) if types is None else ():
            for key, value in record.items():
                self._first.setdefault(key, {}).setdefault(type(value), number)
        super().__init__(str(path), list(self._first if types is None else types), path.name)
        if problems.found and not self._first:
            raise problems.error()

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows; numbers become texts, and a key that a record lacks is null."""
        given = self._types
        types = {own: self._type(own) if given is None else given[own] for own in columns}

        def rows() -> Iterator[Sequence[Any]]:
            for number, record in self._records(problems):
                try:
                    yield number, *(self._value(own, record.get(own), types[own]) for own in types)
                except BadRow as error:
                    problems.refuse(At(self, number), error.rule, error.value)

        yield from _arrays(rows(), types)

    def _records(self, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
        if self._given is not None:
            yield from self._given()
            return
        for number, line in self._texts():
            try:
                self._check_characters(line)
                if line.strip(" \n"):
                    yield number, json_object(line.removesuffix("\n"))
            except BadRow as error:
                problems.refuse(At(self, number), error.rule, error.value)

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

    def _value(self, column: str, value: Any, kind: pa.DataType) -> Any:
        """A value as Arrow takes it: numbers as texts, and one value as a list where lists are."""
        if value is None or (isinstance(value, str) and kind == _STRING) or kind == _BOOL:
            return value
        if pa.types.is_list(kind) and (self._types is None or isinstance(value, list)):
            parts = value if isinstance(value, list) else [value]
            return [self._value(column, part, kind.value_type) for part in parts]
        if pa.types.is_struct(kind) and isinstance(value, dict):
            return {
                own.name: self._value(f"{column}.{own.name}", value.get(own.name), own.type)
                for own in kind
            }
        if kind == _STRING and isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value)
        shapes = {pa.types.is_list: "a list", pa.types.is_struct: "an object"}
        what = next((own for fits, own in shapes.items() if fits(kind)), "a text or a number")
        raise BadRow(f"column {shown(column)} must be {what}, got {{}}", shown(value))


_STRING, _BOOL = pa.string(), pa.bool_()


class _Record(NamedTuple):
    """A row: the line on which it begins, its fields, its text, and what is wrong with it."""

    number: int
    fields: list[str]
    text: str
    problem: BadRow | None


QUOTES = (
    "quotation marks do not fit ({}); a field with one stands in quotation marks, and each within "
    'it is doubled: "5"" pipe"'
)

OPENED = (
    "a quotation mark begins a text that ends on a later line, as Excel writes them; TSV has one "
    "row per line, and quotation marks are part of the text: rename the file to .csv, which may "
    "have tabs"
)


class DelimitedTable(TextFile):
    """A CSV or TSV file, or TREC's qrels. Every value is a text: an id such as 007 stays as it is.

    In CSV, quotation marks are read as RFC 4180 has them; in the others they are part of the text.
    A file without a header has the columns 1, 2, ...

    Args:
        path: the file.
        header: decides by the first line whether it names the columns; ``None``: TREC's qrels.
        tabs: whether tabs alone separate columns, as in TSV.
        encoding: of the file; ``None``: UTF-8.
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
        self._csv = not (header is None or tabs)
        first = next(self._records(), None)
        if first is None:
            raise DataError(f"{path}: is empty; it must have at least one row")
        if first.problem is not None:
            raise DataError(f"{path}:{first.number}: {first.problem}")
        self.first_line = first.fields
        self.has_header = header is not None and header(self.first_line)
        columns = (
            self.first_line
            if self.has_header
            else [str(at + 1) for at in range(len(self.first_line))]
        )
        super().__init__(str(path), TREC_COLUMNS if header is None else columns, path.name)

    def batches(self, columns: Sequence[str], problems: Problems) -> Iterator[Rows]:
        """Yield the rows; empty lines are skipped."""
        places = [self.columns.index(column) for column in columns]
        rows = ((own.number, *(own.fields[at] for at in places)) for own in self._checked(problems))
        yield from _arrays(rows, dict.fromkeys(columns, pa.string()))

    def _checked(self, problems: Problems) -> Iterator[_Record]:
        header, records = sorted(self.first_line) if self.has_header else [], self._records()
        listed = ", ".join(map(shown, self.columns))
        if self.has_header:
            next(records)
        for record in records:
            number, fields, _, problem = record
            if len(fields) < len(self.columns) and self._opens(fields[-1]):
                raise DataError(f"{self.place(number)}: {OPENED}")
            if problem is None and len(fields) != len(self.columns):
                rule = f"must have {len(self.columns)} columns ({listed}), got {{}}"
                problem = BadRow(rule, f"{len(fields)}: {self._joined(fields)}")
            elif fields[-1] in header and sorted(own.lstrip("\ufeff") for own in fields) == header:
                rule = "is a header again ({}), as where files were joined; remove it, or pass the "
                problem = BadRow(rule + "files one by one", self._joined(fields))
            elif self.delimiter is None and _is_number(fields[3]) and float(fields[3]) % 1:
                problem = BadRow(NO_FRACTION, fields[3])
            if problem is None:
                yield record
            else:
                problems.refuse(At(self, number), problem.rule, problem.value)

    def _opens(self, field: str) -> bool:
        """Whether the last field of a line of TSV begins a text that goes on in the next lines."""
        return not self._csv and field.startswith('"') and field.count('"') % 2 == 1

    def _joined(self, fields: Sequence[str]) -> str:
        return shown((self.delimiter or " ").join(fields))

    def _texts(self) -> Iterator[tuple[int, str]]:
        return ((own.number, own.text) for own in self._records())

    def _records(self) -> Iterator[_Record]:
        """Yield the rows; where quotation marks do not fit, each line that was read as one."""
        if not self._csv:
            for number, line in enumerate(self._lines(""), start=1):
                text = line.rstrip("\r\n")
                if not text or not (fields := text.split(self.delimiter)):
                    continue
                if self.delimiter is not None or not _is_comment(fields):
                    yield _Record(number, fields, line, self._problem_of(line))
            return
        csv.field_size_limit(LONGEST_TEXT)
        taken: list[str] = []
        lines = (taken.append(line) or line for line in self._lines(""))  # type: ignore[func-returns-value]
        reader = csv.reader(lines, delimiter=self.delimiter or ",", strict=True)
        number, torn = 1, False
        while True:
            number += len(taken)
            taken.clear()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                torn = True
                for at, line in enumerate(taken, start=number):
                    yield _Record(at, [line], line, BadRow(QUOTES, error))
                continue
            text = "".join(taken)
            # what follows a row that was torn apart may be the end of it
            torn = torn and text.count('"') % 2 == 1
            problem = BadRow(QUOTES, "of a line before") if torn else self._problem_of(text)
            if fields and not (number == 1 and "".join(fields) == "sep="):  # Excel's own
                yield _Record(number, fields, text, problem)

    def _problem_of(self, text: str) -> BadRow | None:
        try:
            self._check_characters(text)
        except BadRow as error:
            return error
        return None

    def _delimiter(self) -> str:
        """What separates the columns, by the first line without what stands in quotation marks."""
        line = re.sub(r'"[^"]*"?', "", next(self._lines(), ""))
        if line.startswith("sep="):
            return line[4:5].strip() or "\t"
        return max(",;\t|", key=line.count)


NO_FRACTION = (
    "grade must be a whole number, got {}; write fractions as weights into a table with the "
    "columns query_id, document_id and weight"
)


def is_qrels(path: Path, encoding: str | None = None, *, numbered: bool = False) -> bool:
    """Whether a file begins as TREC's qrels: four columns, the last a grade.

    If the user gives columns by number (``numbered``), the second must also be Q0 or a digit.

    Raises:
        DataError: for a ranking, TREC's run; for a .qrels file with other columns.
    """
    lines = (line.strip() for line in text_lines(path, encoding=encoding, strict=False))
    line = next((line for line in lines if line and not _is_comment(line.split())), "")
    fields = line.split()
    if len(fields) == 6 and fields[1].upper() == "Q0":
        raise DataError(
            f"{path}: is a ranking (TREC's run: QUERY Q0 DOCUMENT RANK SCORE NAME), not "
            "judgements; pass a qrels file, QUERY 0 DOCUMENT GRADE"
        )
    tabs = line.count("\t")  # a line without tabs is not of a table
    if path.suffix == ".qrels" and tabs == 0 and "," not in line and len(fields) != 4:
        raise DataError(
            f"{path}: a qrels file has four columns, QUERY 0 DOCUMENT GRADE, got {shown(line)}"
        )
    if len(fields) != 4 or not (tabs == 0 or _is_number(fields[3])):
        return False
    return fields[1].upper() in (*"0123456789", "Q0") or (tabs in (0, 3) and not numbered)


def _is_comment(fields: Sequence[str]) -> bool:
    """Whether a line of TREC's qrels is a comment: it begins with # and is not a judgement."""
    judgement = len(fields) == 4 and fields[0] != "#" and _is_number(fields[3])
    return fields[0].startswith("#") and not judgement


def _is_number(text: str) -> bool:
    return re.fullmatch(NUMBER, text) is not None


def _arrays(rows: Iterable[Sequence[Any]], types: Mapping[str, pa.DataType]) -> Iterator[Rows]:
    """Bring rows of Python values, each behind the number of its row, into batches."""
    for batch in batched(rows, BATCH_ROWS, BATCH_CHARACTERS, first=1):
        numbers, *columns = zip(*batch, strict=True)
        values = zip(types.items(), columns, strict=True)
        arrays = {name: pa.array(own, kind) for (name, kind), own in values}
        yield Rows(np.array(numbers), arrays)
