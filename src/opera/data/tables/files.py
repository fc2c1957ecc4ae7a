"""Which tables are in a file or folder, by the ends of names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opera.core.errors import DataError
from opera.core.strict_json import read_json
from opera.core.terminal import shortened, shown
from opera.data.names import SPLIT_NAMES
from opera.data.tables.columns import Columns, TableKind, role_of
from opera.data.tables.delimited import HEADERLESS, DelimitedTable, QrelsTable, is_qrels
from opera.data.tables.readers import ArrowTable, JsonTable, TableFile
from opera.data.training_files.kinds import TELLING, first_keys, kind_of

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")
TREC_SUFFIXES = (".txt", ".qrels", ".trec", "")
_SPLIT = re.compile(f"({'|'.join(SPLIT_NAMES)})(?![A-Za-z0-9])")


def table_suffix(path: Path) -> str:
    """The end of a file's name that says its format, without ``.gz`` or ``.zst``."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return Path(name).suffix


def holds_tables(folder: Path) -> bool:
    """Whether a folder is one of tables: it has some, and nothing of a BEIR folder. Never raises."""
    if any(os.path.lexists(folder / name) for name in ("corpus.jsonl", "queries.jsonl", "qrels")):
        return False
    try:
        return bool(files_in(folder))
    except DataError:
        return os.path.lexists(folder / "dataset_dict.json") or os.path.lexists(
            folder / "state.json"
        )


def is_json_table(path: Path) -> bool:
    """Whether a JSON Lines file begins with a record that is none of FlagEmbedding's or Tevatron's. Never raises."""
    if path.suffix.lower() in (".gz", ".zst"):
        return True
    keys = first_keys(path)
    return bool(keys) and kind_of(path) not in TELLING and not keys & {"pos", "neg"}


def files_in(path: Path) -> list[Path]:
    """Return the files that stand behind a file or folder, in the order in which they are read.

    Raises:
        DataError: if there is none, or a folder cannot be read.
    """
    if not path.is_dir():
        return [path]
    try:
        if (path / "dataset_dict.json").is_file():
            splits = _listed(path / "dataset_dict.json", "splits", str)
            return [
                path / "dataset_dict.json",
                *(file for name in splits for file in files_in(path / name)),
            ]
        if (path / "state.json").is_file():
            parts = _listed(path / "state.json", "_data_files", dict)
            return [
                path / "state.json",
                *(path / _name(path, part.get("filename")) for part in parts),
            ]
        found = sorted(
            file
            for file in path.rglob("*")
            if table_suffix(file) in TABLE_SUFFIXES and file.is_file()
        )
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read ({error.strerror})") from None
    found = [
        file
        for file in found
        if not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not found:
        raise DataError(f"{path}: holds no table ({', '.join(TABLE_SUFFIXES)})")
    return found


def path_below(file: Path, place: Path) -> Path:
    """The path of a file below the folder that it was found in; its name where the place is the file itself."""
    return Path(file.name) if file == place else file.relative_to(place)


def named_splits(pairs: Sequence[tuple[str, str]], notes: list[str]) -> list[tuple[str, str]]:
    """Give several files of pairs the splits that their names begin with, as in a folder, where none is given.

    Args:
        pairs: (split, file); the split is empty where none is given.
        notes: gets what was guessed.
    """
    named: list[tuple[str, str]] = []
    guessed: list[str] = []
    for given, place in pairs:
        split = given or (len(pairs) > 1 and _split_of(Path(place), Path(place))) or ""
        if split and not given:
            guessed.append(f"{Path(place).name} is {split}")
        named.append((split, place))
    if guessed:
        notes.append(shortened(f"splits by the names of files: {', '.join(guessed)}", 300))
    return named


def open_tables(path: Path, kind: TableKind, given: Columns, notes: list[str]) -> list[TableFile]:
    """Open the tables in a file or folder.

    Args:
        path: file or folder.
        kind: what they hold.
        given: what the user says of columns.
        notes: gets what was guessed of files.

    Raises:
        DataError: if one cannot be read, or is no table.
    """
    in_folder, tables = path.is_dir(), []
    for file in files_in(path):
        if in_folder and file.name in ("dataset_dict.json", "state.json"):
            continue
        split = _split_of(file, path) if in_folder and kind == "pairs" else None
        tables.append(_open(file, kind, given, split, notes))
    unsplit = [table.short for table in tables if table.split is None]
    if 0 < len(unsplit) < len(tables):
        listed = shortened(", ".join(unsplit), 200)
        notes.append(
            f"{listed}: no split begins the name, as in test.csv; train, unless a column says otherwise"
        )
    return tables


def _open(
    file: Path, kind: TableKind, given: Columns, split: str | None, notes: list[str]
) -> TableFile:
    suffix = table_suffix(file)
    if suffix in (".parquet", ".arrow", ".feather"):
        return ArrowTable(file, split)
    if suffix in (".jsonl", ".ndjson"):
        return JsonTable(file, split)
    if kind == "pairs" and suffix in (".tsv", *TREC_SUFFIXES) and is_qrels(file):
        notes.append(f"{file.name}: read as TREC's qrels: query, 0, document, grade")
        return QrelsTable(file, split)
    if suffix not in (".csv", ".tsv", *TREC_SUFFIXES):
        advice = "; write JSON as .jsonl, one object per line" if suffix == ".json" else ""
        raise DataError(
            f"{file}: must be a table ({', '.join((*TABLE_SUFFIXES, '.gz of these'))}){advice}"
        )
    table = DelimitedTable(file, suffix != ".csv", _header(kind, given, suffix), split)
    names = None if table.has_header or kind == "pairs" else HEADERLESS.get(len(table.columns))
    if names and not _numbered(kind, given):
        table.columns = names
        notes.append(f"{file.name}: has no header; its columns are read as {', '.join(names)}")
    notes += table.notes
    return table


def _numbered(kind: TableKind, given: Columns) -> bool:
    named = [column for _, column, _ in given.of(kind)]
    return bool(named) and all(column.isdigit() for column in named)


def _header(kind: TableKind, given: Columns, suffix: str) -> Callable[[list[str]], bool]:
    """Whether the first line names columns: in CSV unless ``--columns`` has numbers; in TSV if it has a column that
    ``--columns`` names, or one known for an id (in pairs: for a query or document, or their ids)."""
    telling = ("query", "document", "query_id", "document_id", "id")

    def decide(cells: list[str]) -> bool:
        named = {column for _, column, _ in given.of(kind)}
        if named & set(cells):
            return True
        return not _numbered(kind, given) and (
            suffix == ".csv" or any(role_of(cell, kind) in telling for cell in cells)
        )

    return decide


def _split_of(file: Path, folder: Path) -> str | None:
    """The split that the name of a file, or of a folder above it, begins with."""
    for part in reversed(path_below(file, folder).parts):
        if found := _SPLIT.match(part.lower()):
            return SPLIT_NAMES[found[1]]
    return None


def _listed(path: Path, key: str, kind: type) -> list[Any]:
    """A list in a file that the library ``datasets`` wrote."""
    try:
        found = read_json(path)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
    values = found.get(key) if isinstance(found, dict) else None
    if (
        not isinstance(values, list)
        or not values
        or not all(isinstance(value, kind) for value in values)
    ):
        raise DataError(f"{path}: must hold a list '{key}', as datasets' save_to_disk writes it")
    return [_name(path, value) if kind is str else value for value in values]


def _name(path: Path, name: object) -> str:
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise DataError(f"{path}: must name a file beside it, got {shown(shortened(str(name)))}")
    return name
