"""``load_data``: one data set or several, from whatever names them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user
from opera.core.terminal import shortened
from opera.data.combined import combine
from opera.data.files_read import check_cache_stays_out
from opera.data.memory import load_memory
from opera.data.names import TABLES
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import find_source, kind_of_files
from opera.data.table_files import TableSource

Given = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Columns by role, or as on the command line."""


def load_data(
    source: Any = None,
    *,
    pairs: Any = None,
    documents: Any = None,
    queries: Any = None,
    columns: Given | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    name: str = "pairs",
) -> RetrievalData:
    """Read a data set; data that is already loaded is returned as it is.

    Args:
        source: a BEIR folder, a table of pairs (CSV, TSV, JSON Lines, Parquet, Arrow, or a folder
            of these), a ``.jsonl`` file of FlagEmbedding or Tevatron, a folder or a pattern of such
            files, ``example:faq`` for the data set that comes with OPERA, ``python:PACKAGE`` for
            the source code of an installed package (``python:stdlib`` for the standard library),
            ``irds:ID`` or ``hf:OWNER/NAME`` for one of ir_datasets or of the Hugging Face hub,
            anything a registered source reads, or a table of pairs in memory, such as a DataFrame.
        pairs: tables of pairs, instead of ``source``: a file, several, or files by split. In
            memory: tuples (query, document) or (query, document, grade), dictionaries, or a table
            of pandas, polars, pyarrow or ``datasets``. Without ``pairs``, queries and documents
            are lists of texts, and row i belongs to row i.
        documents: the table of documents whose ids ``pairs`` holds: a file or folder. In memory:
            texts by id, a list of texts with the ids 0, 1, ..., or a table.
        queries: the table of queries, likewise.
        columns: the columns of a table by role, where their names are not known or others are
            meant; see docs/data.md.
        encoding: of text files of tables, as Python names it, such as ``cp1252``; ``None``: UTF-8.
        skip_bad_rows: leave out the rows of tables that break a rule; ``skipped`` lists them.
        name: short name of data in memory, for tables and run records.

    Raises:
        SettingError: for a path that cannot be, such as an empty one, ``source`` and ``pairs``
            both, or neither, or a cache that lies in the data.
        DataError: if no source reads it, or for an error in the data, naming file, line, rule and
            value; for data in memory, argument and row.
    """
    how: dict[str, Any] = {"columns": columns, "encoding": encoding, "skip_bad_rows": skip_bad_rows}
    if not (_are_paths(pairs) and _is_path(documents) and _is_path(queries)):
        return _from_memory(source, pairs, documents, queries, name, **how)
    if source is None or pairs or documents or queries:
        text: Any = data_source(source, pairs=pairs, documents=documents, queries=queries, **how)
    elif _is_path(source) or isinstance(source, RetrievalData):
        text = named_source(source, **how)
    else:
        return _from_memory(None, source, None, None, name, **how)
    if isinstance(text, RetrievalData):
        return text
    reader = find_source(text)
    check_cache_stays_out(text)
    return reader.load(text)


def _is_path(value: Any) -> bool:
    """Whether a value is meant as a path, or is nothing; others are in memory."""
    return value is None or callable(value) or isinstance(value, str | bytes | int | os.PathLike)


def _are_paths(pairs: Any) -> bool:
    """Whether these are paths, a list of them, or paths by split."""
    if pairs is None or isinstance(pairs, str | os.PathLike):
        return True
    values = pairs.values() if isinstance(pairs, Mapping) else pairs
    return isinstance(pairs, list | tuple | Mapping) and all(
        isinstance(value, str | os.PathLike) for value in values
    )


def _from_memory(
    source: Any, pairs: Any, documents: Any, queries: Any, name: str, **how: Any
) -> RetrievalData:
    if source is not None:
        beside = f"not beside a data set ({shortened(str(source))})"
        raise SettingError(f"pairs, documents, queries: {beside}; give one of the two")
    if how.pop("encoding") is not None:
        raise SettingError("encoding: is for text files, and these data are in memory")
    return load_memory(queries, documents, pairs, name=name, **how)


def named_source(source: Any, **how: Any) -> str | RetrievalData:
    """Return one string for what is read from a path or a name; what is in memory is loaded.

    Args:
        source: as for :func:`load_data`.
        how: its arguments ``columns``, ``encoding`` and ``skip_bad_rows``.

    Raises:
        InputError: as :func:`load_data`.
    """
    if _is_path(source):
        return data_source(source, pairs=None, documents=None, queries=None, **how)
    if not isinstance(source, RetrievalData):
        return _from_memory(None, source, None, None, "pairs", **how)
    if used := [name for name, value in how.items() if value]:
        raise SettingError(f"{used[0]}: is for tables that are read, and these data are loaded")
    return source


def load_all(sources: Sequence[str | Path | RetrievalData]) -> RetrievalData:
    """Read one data set, or several as one.

    Args:
        sources: what :func:`load_data` reads.

    Raises:
        DataError: as :func:`load_data`; for an empty list, and for a data set that is given twice.
    """
    sets = [load_data(source) for source in sources]
    if not sets:
        raise DataError("data: give at least one data set, got an empty list")
    return sets[0] if len(sets) == 1 else combine(sets)


def data_source(
    source: str | Path | None,
    *,
    pairs: str | Path | Sequence[str | Path] | Mapping[str, str | Path] | None,
    documents: str | Path | None,
    queries: str | Path | None,
    columns: Given | None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
) -> str:
    """Check how data are named, and return one string that every command reads and a run records.

    Args:
        source: a data set, as for :func:`load_data`.
        pairs: tables of pairs, instead.
        documents: table of documents.
        queries: table of queries.
        columns: columns by role, also of a ``source`` that is a table of pairs.
        encoding: of text files, likewise.
        skip_bad_rows: whether rows that break a rule are left out, likewise.

    Raises:
        SettingError: for both, or neither; for tables of texts without pairs; and as
            :meth:`TableSource.of`.
    """
    sources = [
        f"--{name}"
        for name, value in (("pairs", pairs), ("documents", documents), ("queries", queries))
        if value
    ]
    if source is not None and sources:
        raise SettingError(
            f"{' '.join(sources)}: not beside a data set ({shortened(str(source))}); give one "
            "of the two"
        )
    if source is not None:
        text = str(source) if str(source).startswith(TABLES) else expand_user(source, "data")
        return table_source(text, columns, encoding, skip_bad_rows)
    if not pairs:
        advice = (
            "needs --pairs FILE, the table of pairs"
            if sources
            else "is missing; give a data set, or --pairs FILE"
        )
        raise SettingError(f"{' '.join(sources) or 'DATA'}: {advice}")
    files = pairs, documents or None, queries or None
    return str(TableSource.of(*files, columns or (), encoding, skip_bad_rows))


def table_source(
    text: str, columns: Given | None, encoding: str | None, skip_bad_rows: bool
) -> str:
    """The string form of one table of pairs with what is said of it; of other data, their name.

    Raises:
        SettingError: for anything that is said of other data.
    """
    options = {"--columns": columns, "--encoding": encoding, "--skip-bad-rows": skip_bad_rows}
    used = [name for name, value in options.items() if value]
    if not used:
        return text
    find_source(text)  # an error if nothing reads it
    hub = text.startswith("hf:")
    kind = kind_of_files(text)
    if kind != "tables" and not (hub and used == ["--columns"]):
        what = "is none in a file" if hub else "is none"
        if kind == "trainer":
            what += "; of a file of FlagEmbedding, --pairs reads query, pos and neg"
        raise SettingError(f"{used[-1]}: is for tables, and {shortened(text)} {what}")
    return str(TableSource.of(text, None, None, columns or (), encoding, skip_bad_rows))
