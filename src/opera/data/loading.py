"""``load_data``: load one data set or several, from files, published data or memory."""

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
"""Columns by role, or the text of ``--columns``."""
_BOTH = "{}: cannot be combined with a data set ({}); pass one or the other"


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
    """Read a data set; return data that is already loaded unchanged.

    Args:
        source: the data set. It can be a BEIR folder; a table of pairs (CSV, TSV, JSON Lines,
            Parquet, Arrow, or a folder of these); a ``.jsonl`` file of FlagEmbedding or Tevatron,
            or a folder of them; ``example:faq``, which comes with OPERA; ``python:PACKAGE`` for the
            source code of an installed package (``python:stdlib`` for the standard library);
            ``irds:ID`` for ir_datasets; ``hf:OWNER/NAME`` for the Hugging Face hub; the name of a
            registered source; or a table of pairs in memory, such as a DataFrame.
        pairs: tables of pairs, instead of ``source``: one file, several files, or files by split.
            In memory: tuples (query, document) or (query, document, grade), dictionaries, or a
            table of pandas, polars, pyarrow or ``datasets``. Without ``pairs``, queries and
            documents are lists of texts, and query i belongs to document i.
        documents: the table of the documents whose ids are in ``pairs``: a file or folder. In
            memory: texts by id, a list of texts with the ids 0, 1, ..., or a table.
        queries: the table of queries, in the same formats.
        columns: the columns of a table by role, if OPERA does not recognise their names; see
            docs/data.md.
        encoding: encoding of text files, by its Python name, such as ``cp1252``; ``None``: UTF-8.
        skip_bad_rows: leave out the rows of tables that break a rule; ``skipped`` lists them.
        name: short name of data in memory, for tables and run records.

    Raises:
        SettingError: for an invalid path, such as an empty one; for both ``source`` and ``pairs``,
            or neither; or for a cache inside the data.
        DataError: if no source reads the data, or for an error in the data, with file, line, rule
            and value. For data in memory: with argument and row.
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
    """Whether a value is a path or ``None``. All other values are data in memory."""
    return value is None or callable(value) or isinstance(value, str | bytes | int | os.PathLike)


def _are_paths(pairs: Any) -> bool:
    """Whether ``pairs`` is ``None``, a path, a list of paths, or paths by split."""
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
        raise SettingError(_BOTH.format("pairs, documents, queries", shortened(str(source))))
    if how.pop("encoding") is not None:
        raise SettingError("encoding: applies to text files, but these data are in memory")
    return load_memory(queries, documents, pairs, name=name, **how)


def named_source(source: Any, **how: Any) -> str | RetrievalData:
    """Return a source as one string; load data that are in memory.

    Args:
        source: as for :func:`load_data`.
        how: the arguments ``columns``, ``encoding`` and ``skip_bad_rows`` of :func:`load_data`.

    Raises:
        InputError: as :func:`load_data`.
    """
    if _is_path(source):
        return data_source(source, pairs=None, documents=None, queries=None, **how)
    if not isinstance(source, RetrievalData):
        return _from_memory(None, source, None, None, "pairs", **how)
    if used := [name for name, value in how.items() if value]:
        raise SettingError(f"{used[0]}: applies to tables, but these data are already loaded")
    return source


def load_all(sources: Sequence[str | Path | RetrievalData]) -> RetrievalData:
    """Read one data set, or combine several into one.

    Args:
        sources: data sets, as for :func:`load_data`.

    Raises:
        DataError: as :func:`load_data`; for an empty list, and for a repeated data set.
    """
    sets = [load_data(source) for source in sources]
    if not sets:
        raise DataError("data: pass at least one data set, got an empty list")
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
    """Check the user's data arguments, and return one string that commands read and runs record.

    Args:
        source: a data set, as for :func:`load_data`.
        pairs: tables of pairs, instead of ``source``.
        documents: the table of documents.
        queries: the table of queries.
        columns: columns by role, for ``pairs`` or for a ``source`` that is a table of pairs.
        encoding: the encoding of the tables.
        skip_bad_rows: whether to leave out rows that break a rule.

    Raises:
        SettingError: for both ``source`` and ``pairs``, or neither; for tables of texts without
            pairs; and as :meth:`TableSource.of`.
    """
    sources = [
        f"--{name}"
        for name, value in (("pairs", pairs), ("documents", documents), ("queries", queries))
        if value
    ]
    if source is not None and sources:
        raise SettingError(_BOTH.format(" ".join(sources), shortened(str(source))))
    if source is not None:
        text = str(source) if str(source).startswith(TABLES) else expand_user(source, "data")
        return table_source(text, columns, encoding, skip_bad_rows)
    if not pairs:
        advice = (
            "needs --pairs FILE, the table of pairs"
            if sources
            else "is missing; pass a data set, or --pairs FILE"
        )
        raise SettingError(f"{' '.join(sources) or 'DATA'}: {advice}")
    files = pairs, documents or None, queries or None
    return str(TableSource.of(*files, columns or (), encoding, skip_bad_rows))


def table_source(
    text: str, columns: Given | None, encoding: str | None, skip_bad_rows: bool
) -> str:
    """Return the string form of a table of pairs and its options; for other data, their name.

    Raises:
        SettingError: for options with data that are not a table.
    """
    options = {"--columns": columns, "--encoding": encoding, "--skip-bad-rows": skip_bad_rows}
    used = [name for name, value in options.items() if value]
    if not used:
        return text
    find_source(text)  # raises an error if no source reads the data
    hub = text.startswith("hf:")
    kind = kind_of_files(text)
    if kind != "tables" and not (hub and used == ["--columns"]):
        advice = ""
        if kind == "trainer":
            advice = "; --pairs FILE reads query, pos and neg of a FlagEmbedding file as a table"
        raise SettingError(
            f"{used[-1]}: applies only to tables in files, not to {shortened(text)}{advice}"
        )
    return str(TableSource.of(text, None, None, columns or (), encoding, skip_bad_rows))
