"""Read JSON Lines, and lists of JSON objects, as tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.terminal import shown
from opera.data.columns import LISTS_OF_TEXTS
from opera.data.tables import BEIR_COLUMNS, Problems, Rows, TextFile, arrow_rows
from opera.data.text_files import BadRow, check_characters, json_object

STRINGS_AND_BRACES = re.compile(r'("(?:[^"\\]|\\.)*"|[{}])')


class JsonLines(TextFile):
    """A JSON Lines file of any records."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        super().__init__(str(path), [], path.name)
        self.path, self.encoding = path, encoding

    def records(self, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield line number and record; ``problems`` gets the other lines."""
        for line, text in enumerate(self.lines(), start=1):
            try:
                check_characters(text, self.encoding)
                if text.strip(" \n"):
                    yield line, json_object(text.removesuffix("\n"))
            except BadRow as error:
                problems.add_unreadable(self, line, error.rule, error.value)


class JsonList(JsonLines):
    """A JSON file with a list of objects, such as DPR's. A row is an object."""

    mark = ", record {}"

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """Yield the text of each object. A list must end after its last object."""
        text, depth, start = "", 0, ""
        for line in super().lines(newline):
            start = start or line.strip()[:1]
            for token in STRINGS_AND_BRACES.split(line):
                text += token
                depth += (token == "{") - (token == "}")
                if token == "}" and depth == 0:
                    yield text.lstrip("[, \t\r\n")
                    text = ""
        if (rest := text.strip("[, \t\r\n")) != ("]" if start == "[" else ""):
            yield rest or "["


class JsonTable(JsonLines):
    """A JSON Lines file with a row per record.

    To find the columns, OPERA reads all records: if a writer omits nulls, a column may first occur
    in a late record. A file that begins like BEIR's has BEIR's columns.
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
            for line, record in self.records(problems):
                try:
                    values = (json_value(name, record.get(name), types[name]) for name in types)
                    yield line, *values
                except BadRow as error:
                    problems.add_unreadable(self, line, error.rule, error.value)

        yield from arrow_rows(rows(), types)

    def format_row(self, cells: Mapping[str, str]) -> str:
        """Return a new record."""
        return json.dumps(cells, ensure_ascii=False)

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
        return [json_value(column, item, pa.string()) for item in values]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise BadRow(f"column {shown(column)} must be a text or a number, got {{}}", shown(value))
