"""``load_data``: load one data set or several, from files, published data or memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opera.core.arguments import expand_user, several
from opera.core.cache import cache_folder
from opera.core.errors import DataError, SettingError
from opera.core.terminal import log, shortened, shown_path
from opera.data.hub_source import HubName
from opera.data.memory import load_memory
from opera.data.mixture import ListOptions, Mixture, Source
from opera.data.names import DataName, TableSource
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import LOCAL, ShippedSource, find_source, kind_of_files, load_source
from opera.data.table_files import BEIR_FILES, is_beir

ColumnNames = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Columns by role, or the text of ``--columns``."""


def load_data(
    source: Any = None,
    *,
    pairs: Any = None,
    documents: Any = None,
    queries: Any = None,
    columns: ColumnNames | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    name: str = "pairs",
) -> RetrievalData:
    """Read a data set; data that is already loaded is returned as it is.

    Args:
        source: the data set. It can be a BEIR folder; a table of pairs (CSV, TSV, JSON Lines,
            Parquet, Arrow, or a folder of these); a file of FlagEmbedding, Tevatron or DPR, or a
            folder of them; ``example:faq``, which comes with OPERA; ``python:PACKAGE`` for the
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
        skip_bad_rows: leave out the rows of tables that break a rule; the data list them in
            ``skipped``.
        name: short name of data in memory, for tables and run records.

    Raises:
        SettingError: for an invalid path, such as an empty one; for both ``source`` and ``pairs``,
            or neither; or for a cache inside the data.
        DataError: if no source reads the data, or for an error in the data, with file, line, rule
            and value. For data in memory: with argument and row.

    Examples:
        >>> opera.load_data("example:faq")
        RetrievalData(example:faq: 66 documents, 300 train queries, 300 train pairs)
        >>> opera.load_data(pairs=[("a wool coat", "Wool is warm."), ("a vase", "For flowers.")])
        RetrievalData(pairs: 2 documents, 2 train queries, 2 train pairs)
    """
    named = named_source(
        source,
        pairs=pairs,
        documents=documents,
        queries=queries,
        columns=columns,
        encoding=encoding,
        skip_bad_rows=skip_bad_rows,
        name=name,
    )
    if isinstance(named, RetrievalData):
        return named
    if isinstance(named, Mixture):
        if named.is_single:
            return named.data_sets[0]
        raise DataError(
            f"{named.joined.title}: these are several data sets, but only one can be read here; "
            "pass one of them"
        )
    check_stays_out(cache_folder(), "OPERA_CACHE", named)
    loaded = load_source(named)
    if not isinstance(loaded, RetrievalData):  # from an extension
        raise DataError(
            f"{shortened(str(named))}: its source must return RetrievalData, got "
            f"{type(loaded).__name__}"
        )
    return replace(loaded, source=named)


def named_source(
    source: Any,
    *,
    pairs: Any = None,
    documents: Any = None,
    queries: Any = None,
    columns: ColumnNames | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    name: str = "pairs",
    strict: bool = True,
) -> DataName | RetrievalData | Mixture:
    """Check the user's data, and return the name that commands read and runs record. Load data that
    are in memory.

    The arguments are those of :func:`load_data`. If ``strict``, data that are not tables reject
    ``encoding`` and ``skip_bad_rows``. Other data sets and lists of a run may need these options.

    Raises:
        SettingError: for both ``source`` and ``pairs``, or neither; for tables of texts without
            pairs; for options that do not fit the data; and as :meth:`TableSource.of`.
    """
    items = source[:1] if isinstance(source, list | tuple) else ()
    if any(isinstance(item, str | os.PathLike | RetrievalData | Mixture) for item in items):
        raise SettingError(
            "data: must be one data set, got a list; pass more data sets with also=[...] to train "
            "on all of them together"
        )
    tables = {"pairs": pairs, "documents": documents, "queries": queries}
    options = [f"--{role}" for role, value in tables.items() if value is not None]
    if source is not None and options:
        raise SettingError(
            f"{' '.join(options)}: cannot be combined with a data set ({shortened(str(source))}); "
            "pass one or the other"
        )
    is_path = isinstance(source, str | os.PathLike)
    is_table = is_path and kind_of_files(expand_user(source, "data")) == "tables"
    if not strict and not (source is None or is_table):
        in_memory = not (is_path or isinstance(source, RetrievalData | Mixture))
        encoding, skip_bad_rows = None, skip_bad_rows and in_memory
    if isinstance(source, TableSource):
        return source
    if isinstance(source, RetrievalData | Mixture):
        if columns or encoding or skip_bad_rows:
            raise SettingError("columns, encoding and skip_bad_rows: the data are already loaded")
        return source
    if not (_are_paths(pairs) and _are_paths([source, documents, queries])):
        if encoding is not None:
            raise SettingError("encoding: applies to text files, but these data are in memory")
        table = pairs if source is None else source
        return load_memory(queries, documents, table, columns, name, skip_bad_rows)
    if source is not None:
        return table_source(expand_user(source, "data"), columns, encoding, skip_bad_rows)
    if pairs is None:
        raise SettingError(
            f"{' '.join(options)}: needs --pairs FILE, the table of pairs"
            if options
            else "DATA: is missing; pass a data set, or --pairs FILE"
        )
    return TableSource.of(pairs, documents, queries, columns or (), encoding, skip_bad_rows)


def additional_sources(also: Any, encoding: str | None, skip_bad_rows: bool) -> list[Any]:
    """Check the further data sets of a run, as :func:`named_source`.

    The user's columns belong to the first data set.
    """
    return [
        named_source(source, encoding=encoding, skip_bad_rows=skip_bad_rows, strict=False)
        for source in several(also, "also", "data sets")
    ]


def log_notes(data: RetrievalData) -> RetrievalData:
    """Log what was merged, dropped or split on reading; return the data."""
    for note in data.notes:
        log.info("note: %s", note)
    return data


def _are_paths(pairs: Any) -> bool:
    """Whether ``pairs`` is ``None``, a path, a list of paths, or paths by split. All other values
    are data in memory.
    """
    values = pairs.values() if isinstance(pairs, Mapping) else pairs
    items = values if isinstance(pairs, list | tuple | Mapping) else [pairs]
    return all(isinstance(item, str | os.PathLike | None) for item in items)


def load_all(
    sources: Sequence[Source],
    encoding: str | None = None,
    skip_bad_rows: bool = False,
) -> Mixture:
    """Read one data set or several.

    Args:
        sources: data sets, as for :func:`load_data`; or a single mixture.
        encoding: the encoding of lists of pairs, such as decisions.
        skip_bad_rows: whether to leave out rows of such lists that break a rule.

    Raises:
        DataError: as :func:`load_data`; and for a repeated data set.
    """
    options = ListOptions.checked(encoding, skip_bad_rows)
    if len(sources) == 1 and isinstance(sources[0], Mixture):
        return replace(sources[0], list_options=options)
    return replace(Mixture.of(*map(load_data, sources)), list_options=options)


def table_source(
    text: str, columns: ColumnNames | None, encoding: str | None, skip_bad_rows: bool
) -> DataName:
    """Return a table of pairs with its options; without options, or for other data, their name.

    Raises:
        SettingError: for options with data that are not a table.
    """
    options = {"--columns": columns, "--encoding": encoding, "--skip-bad-rows": skip_bad_rows}
    used = [name for name, value in options.items() if value]
    if not used:
        return text
    kind = kind_of_files(text) if isinstance(find_source(text), ShippedSource) else None
    if kind != "tables" and not (text.startswith("hf:") and used == ["--columns"]):
        trainer = "; --pairs FILE reads query, pos and neg of a FlagEmbedding file as a table"
        raise SettingError(
            f"{used[-1]}: applies only to tables in files, not to {shortened(text)}"
            f"{trainer if kind == 'trainer' else ''}"
        )
    return TableSource.of(text, None, None, columns or (), encoding, skip_bad_rows)


def load_stored(source: DataName) -> RetrievalData:
    """Read a folder or files whose paths come from a file and not from the user.

    So OPERA uses no registered source and no Python package, and downloads nothing.

    Raises:
        InputError: as :func:`load_data`.
    """
    check_stays_out(cache_folder(), "OPERA_CACHE", source)
    return load_source(source, LOCAL)


def files_read(source: Source) -> list[Path]:
    """Return the files and folders of data sets, which no output may replace."""
    paths: list[Path] = []
    for data_set in source.data_sets if isinstance(source, Mixture) else [source]:
        name = data_set.source if isinstance(data_set, RetrievalData) else data_set
        files = name.files if isinstance(name, TableSource) else [expand_user(name, "data")]
        for file in files:
            if file.startswith("hf:"):
                published = HubName.parse(file.removeprefix("hf:"))
                paths += published.folders if published.local else ()
            elif is_beir(file):
                paths += [Path(file, name) for name in BEIR_FILES]
            else:
                paths.append(Path(file))
    return [path for path in paths if os.path.lexists(path)]


def check_stays_out(path: Path, name: str, source: Source) -> None:
    """Check that the output is outside the data, so that it does not become data itself.

    Args:
        path: the output.
        name: the option of the output, for the message.
        source: the data set.

    Raises:
        SettingError: if the output is inside the data; names their folder.
    """
    for home in files_read(source):
        target, data = Path(os.path.realpath(path)), Path(os.path.realpath(home))
        below = target.relative_to(data).parts if target.is_relative_to(data) else ()
        if below and data.is_dir() and not any(part.startswith(".") for part in below):
            raise SettingError(
                f"{name} {shown_path(path)}: is inside {shown_path(home)}, which OPERA reads as "
                "data; pass a folder outside the data"
            )
