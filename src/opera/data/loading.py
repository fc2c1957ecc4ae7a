"""``load_data``: one data set or several, from whatever names them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user
from opera.core.terminal import shortened, shown
from opera.data.combined import combine
from opera.data.names import TABLES
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import find_source, kind_of_files
from opera.data.stored import check_cache_stays_out
from opera.data.tables.files import TableSource

Given = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Columns by role, or as on the command line."""


def load_data(
    source: Any = None,
    *,
    pairs: str | Path | Sequence[str | Path] | Mapping[str, str | Path] | None = None,
    documents: str | Path | None = None,
    queries: str | Path | None = None,
    columns: Given | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
) -> RetrievalData:
    """Read a data set; data that is already loaded is returned as it is.

    Args:
        source: a BEIR folder, a table of pairs (CSV, TSV, JSON Lines, Parquet, Arrow, or a folder
            of these), a ``.jsonl`` file of FlagEmbedding or Tevatron, a folder or a pattern of such
            files, ``example:faq`` for the data set that comes with OPERA, ``python:PACKAGE`` for
            the source code of an installed package (``python:stdlib`` for the standard library),
            ``irds:ID`` or ``hf:OWNER/NAME`` for one of ir_datasets or of the Hugging Face hub,
            anything a registered source reads, or a table of pairs in memory, such as a DataFrame.
        pairs: tables of pairs, instead of ``source``: a file, several, or files by split.
        documents: the table of documents whose ids ``pairs`` holds.
        queries: the table of queries, likewise.
        columns: the columns of a table by role, where their names are not known or others are
            meant.
        encoding: of text files of tables, as Python names it, such as ``cp1252``; ``None``: UTF-8.
        skip_bad_rows: leave out the rows of tables that break a rule; ``skipped`` lists them.

    Raises:
        SettingError: for a path that cannot be, such as an empty one, ``source`` and ``pairs``
            both, or neither, or a cache that lies in the data.
        DataError: if no source reads it, or for an error in the data, naming file, line, rule and
            value.
    """
    how: dict[str, Any] = {"columns": columns, "encoding": encoding, "skip_bad_rows": skip_bad_rows}
    text: str | RetrievalData
    if source is None or pairs or documents or queries:
        text = data_source(source, pairs=pairs, documents=documents, queries=queries, **how)
    else:
        text = named_source(source, **how)
    if isinstance(text, RetrievalData):
        return text
    reader = find_source(text)
    check_cache_stays_out(text)
    return reader.load(text)


def named_source(source: Any, **how: Any) -> str | RetrievalData:
    """Return one string for what is read from a path or a name; what is in memory is loaded.

    Args:
        source: as for :func:`load_data`.
        how: its arguments ``columns``, ``encoding`` and ``skip_bad_rows``.

    Raises:
        InputError: as :func:`load_data`.
    """
    if source is None or callable(source) or isinstance(source, str | bytes | int | os.PathLike):
        return data_source(source, pairs=None, documents=None, queries=None, **how)
    encoding, loaded = how.pop("encoding"), isinstance(source, RetrievalData)
    if loaded and (given := [name for name, value in how.items() if value]):
        raise SettingError(f"{given[0]}: is for tables that are read, and these data are loaded")
    if encoding is not None:
        raise SettingError("encoding: is for text files, and these data are in memory")
    return source if loaded else RetrievalData.from_pairs(pairs=source, **how)


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
    if not isinstance(pairs, str | Path | Sequence | Mapping | None):
        raise SettingError(
            f"pairs: must be a path, or several, got {shown(type(pairs).__name__)}; a table "
            "in memory is read by "
            "RetrievalData.from_pairs(pairs=...)"
        )
    given = [
        f"--{name}"
        for name, value in (("pairs", pairs), ("documents", documents), ("queries", queries))
        if value
    ]
    if source is not None and given:
        raise SettingError(
            f"{' '.join(given)}: not beside a data set ({shortened(str(source))}); give one "
            "of the two"
        )
    if source is not None:
        text = str(source) if str(source).startswith(TABLES) else expand_user(source, "data")
        return table_source(text, columns, encoding, skip_bad_rows)
    if not pairs:
        advice = (
            "needs --pairs FILE, the table of pairs"
            if given
            else "is missing; give a data set, or --pairs FILE"
        )
        raise SettingError(f"{' '.join(given) or 'DATA'}: {advice}")
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
    given = [name for name, value in options.items() if value]
    if not given:
        return text
    find_source(text)  # an error if nothing reads it
    hub = text.startswith("hf:")
    kind = kind_of_files(text)
    if kind != "tables" and not (hub and given == ["--columns"]):
        what = "is none in a file" if hub else "is none"
        if kind == "beir":
            what += (
                "; give its files: --documents corpus.jsonl --queries queries.jsonl --pairs "
                "qrels/train.tsv, and so on"
            )
        if kind == "trainer":
            what += "; of a file of FlagEmbedding, --pairs reads query, pos and neg"
        raise SettingError(f"{given[-1]}: is for tables, and {shortened(text)} {what}")
    return str(TableSource.of(text, None, None, columns or (), encoding, skip_bad_rows))
