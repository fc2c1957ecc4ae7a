"""``load_data``: one data set or several, from whatever names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user
from opera.core.terminal import shortened, shown
from opera.data.combined import combine
from opera.data.names import TABLES
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import find_source, kind_of_files
from opera.data.stored import check_cache_stays_out
from opera.data.tables.files import TableSource


def load_data(
    source: str | Path | RetrievalData | None = None,
    *,
    pairs: str | Path | Sequence[str | Path] | Mapping[str, str | Path] | None = None,
    documents: str | Path | None = None,
    queries: str | Path | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
) -> RetrievalData:
    """Read a data set; data that is already loaded is returned as it is.

    Args:
        source: a BEIR folder, a table of pairs (CSV, TSV, JSON Lines, Parquet, Arrow, or a folder
            of these), a ``.jsonl`` file of FlagEmbedding or Tevatron, a folder or a pattern of such
            files, ``python:PACKAGE`` for the source code of an installed package (``python:stdlib``
            for the standard library), ``paper:NAME`` for one of the paper's data sets, ``irds:ID``
            or ``hf:OWNER/NAME`` for one of ir_datasets or of the Hugging Face hub, or anything a
            registered source reads.
        pairs: tables of pairs, instead of ``source``: a file, several, or files by split.
        documents: the table of documents whose ids ``pairs`` holds.
        queries: the table of queries, likewise.
        columns: the columns of a table by role, where their names are not known or others are
            meant.

    Raises:
        SettingError: for a path that cannot be, such as an empty one, ``source`` and ``pairs``
            both, or neither, or a cache that lies in the data.
        DataError: if no source reads it, or for an error in the data, naming file, line, rule and
            value.
    """
    if isinstance(source, RetrievalData):
        return source
    text = data_source(
        source, pairs=pairs, documents=documents, queries=queries, columns=columns or {}
    )
    reader = find_source(text)
    check_cache_stays_out(text)
    return reader.load(text)


def load_all(
    sources: str | Path | RetrievalData | Sequence[str | Path | RetrievalData],
) -> RetrievalData:
    """Read one data set, or several as one.

    Args:
        sources: anything :func:`load_data` reads, or a list of it.

    Raises:
        DataError: as :func:`load_data`; for an empty list, and for a data set that is given twice.
    """
    if isinstance(sources, str | Path | RetrievalData):
        return load_data(sources)
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
    columns: str | Sequence[str] | Mapping[str, str | Sequence[str]],
) -> str:
    """Check how data are named, and return one string that every command reads and a run records.

    Args:
        source: a data set, as for :func:`load_data`.
        pairs: tables of pairs, instead.
        documents: table of documents.
        queries: table of queries.
        columns: columns by role, also of a ``source`` that is a table of pairs.

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
        return _with_columns(text, columns) if columns else text
    if not pairs:
        advice = (
            "needs --pairs FILE, the table of pairs"
            if given
            else "is missing; give a data set, or --pairs FILE"
        )
        raise SettingError(f"{' '.join(given) or 'DATA'}: {advice}")
    return str(TableSource.of(pairs, documents or None, queries or None, columns))


def _with_columns(
    text: str, columns: str | Sequence[str] | Mapping[str, str | Sequence[str]]
) -> str:
    """The string form of one table of pairs with its columns."""
    find_source(text)  # an error if nothing reads it
    if kind_of_files(text) != "tables" and not text.startswith("hf:"):
        raise SettingError(
            f"--columns: is for tables, and {shortened(text)} is none that has columns to choose"
        )
    return str(TableSource.of(text, columns=columns))
