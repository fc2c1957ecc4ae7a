"""``TableSource``: the tables of a data set; and functions that open their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from opera.core.arguments import flag
from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user
from opera.core.terminal import shortened, shown
from opera.data.arrow_tables import ArrowTable
from opera.data.columns import Columns, TableKind, matching_name, parse_columns, role_of
from opera.data.delimited_tables import DelimitedTable, is_qrels
from opera.data.json_tables import JsonTable
from opera.data.names import SPLIT_NAMES, TABLES, split_name
from opera.data.tables import Table
from opera.data.text_files import checked_encoding, is_utf8

BEIR_FILES = ("corpus.jsonl", "queries.jsonl", "qrels")
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")
_TREC_SUFFIXES = (".txt", ".qrels", ".trec", "")
_HEADERLESS = {2: ["id", "text"], 4: ["id", "url", "title", "text"]}
"""Columns of a TSV without a header, by their number: MS MARCO's queries or passages, and its
documents."""


@dataclass(frozen=True)
class TableSource:
    """The tables of one data set.

    Attributes:
        pairs: (name of the split, file) of the pairs. The name is empty if the file's name or a
            column has it.
        documents: the file or folder of documents, or ``None`` if the pairs have the texts.
        queries: the file or folder of queries, or ``None`` if the pairs have the texts.
        columns: (role, column) that the user names.
        encoding: the encoding of text files; ``None``: UTF-8.
        skip_bad_rows: whether to leave out rows that break a rule.
    """

    pairs: tuple[tuple[str, str], ...]
    documents: str | None = None
    queries: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    encoding: str | None = None
    skip_bad_rows: bool = False

    @classmethod
    def of(
        cls,
        pairs: str | Path | Sequence[str | Path | tuple[str, str]] | Mapping[str, str | Path],
        documents: str | Path | None = None,
        queries: str | Path | None = None,
        columns: str | Mapping[str, str | Sequence[str]] | Iterable[str] = (),
        encoding: str | None = None,
        skip_bad_rows: bool = False,
    ) -> TableSource:
        """Check the user's arguments, and expand paths.

        Args:
            pairs: file or files; ``SPLIT=FILE``, or a mapping from split to file.
            documents: file or folder.
            queries: file or folder.
            columns: ``role=column,...`` as on the command line, or columns by role.
            encoding: the Python name of the encoding of text files.
            skip_bad_rows: whether to leave out rows that break a rule.

        Raises:
            SettingError: for an invalid path, or an unknown split, role or encoding.
        """
        if isinstance(pairs, Mapping):
            pairs = [(name, str(path)) for name, path in pairs.items()]
        files = [
            _split_file(part) for part in ([pairs] if isinstance(pairs, str | Path) else pairs)
        ]
        if not files:
            raise SettingError("--pairs: must name at least one file")
        return cls(
            tuple(files),
            None if documents is None else expand_user(documents, "--documents"),
            None if queries is None else expand_user(queries, "--queries"),
            parse_columns(columns),
            checked_encoding(encoding),
            flag(skip_bad_rows, "skip_bad_rows"),
        )

    @classmethod
    def parse(cls, text: str) -> TableSource:
        """Parse the text of :meth:`__str__`.

        Raises:
            SettingError: for any other text.
        """
        pairs: list[str | Path | tuple[str, str]] = []
        columns, how = dict[str, list[str]](), dict[str, Any]()
        for key, value in parse_qsl(text.removeprefix(TABLES), keep_blank_values=True):
            kind, _, part = key.partition(".")
            if kind == "pairs":
                pairs.append((part, value))
            elif kind == "columns":
                columns.setdefault(part, []).append(value)
            else:
                how[key] = value == "true" if key == "skip_bad_rows" else value
        if not pairs or how.keys() - {"documents", "queries", "encoding", "skip_bad_rows"}:
            raise SettingError(
                f"{TABLES} must have pairs, as in {TABLES}pairs=clicks.csv, and may have "
                f"documents, queries and columns; got {shown(text)}"
            )
        return cls.of(pairs, columns=columns, **how)

    def __str__(self) -> str:
        """A line for :meth:`parse`, such as ``tables:documents=docs.parquet&pairs=p.csv``."""
        parts = [(role.removesuffix("."), path) for role, path in self.roles]
        parts += [(f"columns.{role}", column) for role, column in self.columns]
        parts += [] if self.encoding is None else [("encoding", self.encoding)]
        parts += [("skip_bad_rows", "true")] if self.skip_bad_rows else []
        return TABLES + urlencode(parts, quote_via=quote, safe="/:~,=")

    def with_files_of_beir(self) -> TableSource:
        """Return the same tables; replace a BEIR folder by its files.

        Raises:
            DataError: if a part of the BEIR folder is missing.
        """
        folder = Path(self.pairs[0][1])
        if self.documents or self.queries or len(self.pairs) > 1 or not is_beir(folder):
            return self
        for name in BEIR_FILES:
            if not os.path.lexists(folder / name):
                raise DataError(f"{folder}: not a BEIR folder: {name} is missing")
        files = sorted((folder / "qrels").glob("[!.]*.tsv"))
        if not files:
            raise DataError(
                f"{folder}: not a BEIR folder: qrels/ has no .tsv file, such as qrels/train.tsv"
            )
        pairs = tuple((path.stem.casefold(), str(path)) for path in files)
        documents, queries = (str(folder / name) for name in BEIR_FILES[:2])
        return replace(self, pairs=pairs, documents=documents, queries=queries)

    def with_paths(self, change: Callable[[str], str]) -> TableSource:
        """Return the same tables with each path changed."""
        return replace(
            self,
            pairs=tuple((split, change(path)) for split, path in self.pairs),
            documents=self.documents and change(self.documents),
            queries=self.queries and change(self.queries),
        )

    @property
    def roles(self) -> list[tuple[str, str]]:
        """The role (``documents``, ``queries``, or ``pairs.`` and the split) and path of files."""
        texts = (("documents", self.documents), ("queries", self.queries))
        pairs = [(f"pairs.{split}", path) for split, path in self.pairs]
        return [(name, path) for name, path in texts if path is not None] + pairs

    @property
    def files(self) -> list[str]:
        """The user's files and folders."""
        return [path for _, path in self.roles]


def is_beir(folder: str | Path) -> bool:
    """Whether a folder has a file or folder of the BEIR layout. Never raises."""
    return any(os.path.lexists(Path(folder, name)) for name in BEIR_FILES)


def _split_file(value: str | Path | tuple[str, str]) -> tuple[str, str]:
    """Parse ``SPLIT=FILE`` or ``FILE``; the name of a file may have an equals sign."""
    if isinstance(value, tuple):
        return value[0] and _split(value[0]), expand_user(value[1], "--pairs")
    split, equals, path = str(value).partition("=")
    if equals and (split in SPLIT_NAMES or (split.isalnum() and not os.path.lexists(value))):
        return _split(split), expand_user(path, "--pairs")
    return "", expand_user(value, "--pairs")


def _split(name: str) -> str:
    if name not in SPLIT_NAMES:
        raise SettingError(f"--pairs: a split must be train, dev or test, got {shown(name)}")
    return name


def table_suffix(path: Path) -> str:
    """The suffix of a file's format, before ``.gz`` or ``.zst``."""
    return Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix


def holds_tables(folder: Path) -> bool:
    """Whether a folder contains a table."""
    return any(table_suffix(file) in TABLE_SUFFIXES for file in folder.rglob("*"))


def files_in(path: Path) -> list[Path]:
    """Return a file, or the tables in a folder, in reading order.

    Raises:
        DataError: if the folder has no table or cannot be read.
    """
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.rglob("*")
        if table_suffix(file) in TABLE_SUFFIXES
        and not file.name.startswith("cache-")  # written by map() of datasets
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and file.is_file()
    )
    if not files:
        raise DataError(f"{path}: has no table ({', '.join(TABLE_SUFFIXES)})")
    return files


def path_below(file: Path, place: Path) -> Path:
    """The path of a file relative to the folder ``place``; its name if ``place`` is the file."""
    return Path(file.name) if file == place else file.relative_to(place)


def open_texts(
    path: str, kind: TableKind, columns: Columns, notes: list[str], encoding: str | None = None
) -> list[Table]:
    """Open the tables of documents or queries in a file or folder; add assumptions to ``notes``.

    Raises:
        DataError: if a file cannot be read, or is not a table.
    """
    return [_open(file, kind, columns, notes, encoding) for file in files_in(Path(path))]


def open_pairs(
    pairs: Sequence[tuple[str, str]],
    columns: Columns,
    notes: list[str],
    encoding: str | None = None,
) -> list[tuple[str | None, Table]]:
    """Open tables of pairs with the names of their splits, from the paths of several files.

    Raises:
        DataError: if a file cannot be read, or is not a table.
    """
    tables: list[tuple[str | None, Table]] = []
    unnamed = []
    for split, place in pairs:
        home = Path(place)
        for file in files_in(home):
            name: str | None = split or None
            if name is None and (len(pairs) > 1 or home.is_dir()):
                name = split_name(path_below(file, home))
                unnamed += [file.name] * (name is None)
            tables.append((name, _open(file, "pairs", columns, notes, encoding)))
    if 0 < len(unnamed) < len(tables):
        notes.append(
            f"{shortened(', '.join(unnamed), 200)}: read as train, unless a column has the split, "
            "because the name has no split, as in test.csv"
        )
    return tables


def _open(
    file: Path, kind: TableKind, columns: Columns, notes: list[str], encoding: str | None
) -> Table:
    suffix = table_suffix(file)
    if suffix in (".parquet", ".arrow", ".feather"):
        return ArrowTable(file)
    if encoding is not None and is_utf8(file, encoding):
        notes.append(f"{file.name}: is UTF-8, so OPERA does not read it as {encoding}")
        encoding = None
    if suffix in (".jsonl", ".ndjson"):
        return JsonTable(file, encoding=encoding)
    trec = kind == "pairs" and suffix in (".tsv", *_TREC_SUFFIXES)
    if trec and is_qrels(file, encoding, numbered=columns.numbered(kind)):
        notes.append(f"{file.name}: read as TREC qrels: query, 0, document, grade")
        return DelimitedTable(file, None, encoding=encoding)
    if suffix not in (".csv", ".tsv", *_TREC_SUFFIXES):
        advice = "; write JSON as .jsonl, one object per line" if suffix == ".json" else ""
        raise DataError(
            f"{file}: must be a table ({', '.join((*TABLE_SUFFIXES, '.gz of these'))}){advice}"
        )

    def is_header(cells: list[str]) -> bool:
        """CSV has a header unless the user names columns by number; TSV if it has known names."""
        if any(matching_name(column, cells) for _, column in columns.of(kind)):
            return True
        roles = ("query", "document", "query_id", "document_id", "id")
        known = suffix == ".csv" or any(role_of(cell, kind) in roles for cell in cells)
        return known and not columns.numbered(kind)

    table = DelimitedTable(file, is_header, tabs=suffix != ".csv", encoding=encoding)
    names = None if kind == "pairs" else _HEADERLESS.get(len(table.columns))
    if names and not table.has_header and not columns.numbered(kind):
        table.columns = names
        notes.append(f"{file.name}: has no header; read the columns as {', '.join(names)}")
    return table
