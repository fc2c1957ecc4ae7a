"""Open the tables of a data set in files and folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opera.core.errors import DataError
from opera.core.terminal import shortened
from opera.data.columns import Columns, TableKind, matching_name, role_of
from opera.data.delimited_tables import DelimitedTable, is_qrels
from opera.data.excel_tables import EXCEL_SUFFIX, ExcelTable
from opera.data.json_tables import JsonTable
from opera.data.names import TableSource, split_name
from opera.data.tables import ArrowTable, Table
from opera.data.text_files import is_utf8

BEIR_FILES = ("corpus.jsonl", "queries.jsonl", "qrels")
TABLE_SUFFIXES = (
    ".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather", EXCEL_SUFFIX
)  # fmt: skip
_TREC_SUFFIXES = (".txt", ".qrels", ".trec", "")
_HEADERLESS = {2: ["id", "text"], 4: ["id", "url", "title", "text"]}
"""Columns of a TSV without a header, by their number: MS MARCO's queries or passages, and its
documents."""


def files_of_beir(tables: TableSource) -> TableSource:
    """Return the same tables; replace a BEIR folder by its files.

    Raises:
        DataError: if a part of the BEIR folder is missing.
    """
    folder = Path(tables.pairs[0][1])
    if tables.documents or tables.queries or len(tables.pairs) > 1 or not is_beir(folder):
        return tables
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
    return replace(tables, pairs=pairs, documents=documents, queries=queries)


def is_beir(folder: str | Path) -> bool:
    """Whether a folder has a file or folder of the BEIR layout. Never raises."""
    return any(os.path.lexists(Path(folder, name)) for name in BEIR_FILES)


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


def path_below(file: Path, path: Path) -> Path:
    """The path of a file relative to the folder ``path``; its name if ``path`` is the file."""
    return Path(file.name) if file == path else file.relative_to(path)


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
    for split, path in pairs:
        home = Path(path)
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
    if suffix == EXCEL_SUFFIX:
        return ExcelTable(file)
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
