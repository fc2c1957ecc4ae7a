"""Data sources: what ``load_data`` can read.

Register your own source with one line above its class::

    @register_source
    class MySource: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user, kind_of_place
from opera.core.terminal import shortened
from opera.data.beir import load_beir
from opera.data.combined import combine
from opera.data.hub_folder import local_folder
from opera.data.hub_source import load_hub
from opera.data.irds_source import load_irds, load_paper_set
from opera.data.names import MEMORY, TABLES
from opera.data.python_source import load_python
from opera.data.retrieval_data import RetrievalData
from opera.data.tables.files import TABLE_SUFFIXES, holds_tables, is_json_table, table_suffix
from opera.data.tables.load import load_tables
from opera.data.tables.source import TableSource
from opera.data.training_files.kinds import is_pattern, listed_files
from opera.data.training_files.source import holds_training_files, load_training_files


class DataSource(Protocol):
    """One kind of data.

    Attributes:
        description: what the user passes, for error messages, such as ``"a .csv file"``.
    """

    description: str

    def matches(self, source: str) -> bool:
        """Whether this class reads ``source``; cheap, and never raises."""

    def load(self, source: str) -> RetrievalData:
        """Read ``source``.

        Raises:
            DataError: naming file, line, rule and value.
        """


class BeirFolder:
    """A folder in BEIR's format; any folder without tables is taken for one, so that the message says what it lacks."""

    description = "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/)"

    def matches(self, source: str) -> bool:
        """Whether ``source`` is a folder that holds neither another trainer's files nor tables."""
        # Path.is_dir raises where a name is too long
        is_folder = os.path.isdir(source)  # noqa: PTH112
        return is_folder and not holds_training_files(source) and not holds_tables(Path(source))

    def load(self, source: str) -> RetrievalData:
        """Read corpus, queries and all qrels."""
        return load_beir(Path(source))


class TrainingFiles:
    """Training files of FlagEmbedding or Tevatron: one, or those of a folder or a pattern."""

    description = "a .jsonl file or a folder of FlagEmbedding or Tevatron"

    def matches(self, source: str) -> bool:
        """Whether ``source`` is a ``.jsonl`` file but a table, or stands for some with the keys of these trainers."""
        if os.path.isfile(source):  # noqa: PTH113 - as above
            return source.lower().endswith(".jsonl") and not is_json_table(Path(source))
        return (is_pattern(source) or os.path.isdir(source)) and holds_training_files(source)  # noqa: PTH112

    def load(self, source: str) -> RetrievalData:
        """Read the splits that the names of the files say; a single file is train."""
        return load_training_files(source)


@dataclass
class NamedData:
    """Data behind a name and not a path.

    Attributes:
        prefix: what the name starts with, such as ``"python:"``.
        description: as for every source.
        read: loads what stands behind the prefix.
    """

    prefix: str
    description: str
    read: Callable[[str], RetrievalData]

    def matches(self, source: str) -> bool:
        """Whether ``source`` starts with the prefix."""
        return source.startswith(self.prefix)

    def load(self, source: str) -> RetrievalData:
        """Read it from the cache, or where it comes from; code is never run or imported."""
        return self.read(source.removeprefix(self.prefix))


class TableFileOrFolder:
    """A table of pairs, or a folder of such tables."""

    description = "a table of pairs (.csv, .tsv, .jsonl, .parquet, .arrow, or a folder of these)"

    def matches(self, source: str) -> bool:
        """Whether ``source`` is such a file or folder, and none of BEIR's or FlagEmbedding's."""
        path = Path(source)
        if os.path.isdir(source):  # noqa: PTH112 - as above
            return holds_tables(path) and not holds_training_files(source)
        if table_suffix(path) not in TABLE_SUFFIXES or not os.path.isfile(source):  # noqa: PTH113 - as above
            return False
        return table_suffix(path) not in (".jsonl", ".ndjson") or is_json_table(path)

    def load(self, source: str) -> RetrievalData:
        """Read the pairs, and the texts in them."""
        return load_tables(TableSource.of(source), source)


def load_table_source(text: str) -> RetrievalData:
    """Load what the string form of a :class:`TableSource` names, given without its prefix."""
    tables = TableSource.parse(text)
    if (hub := tables.hub_name) is not None:
        return load_hub(hub, str(tables), tables.columns)
    return load_tables(tables)


SOURCES: list[DataSource] = [
    BeirFolder(),
    TrainingFiles(),
    TableFileOrFolder(),
    NamedData("python:", "python:PACKAGE", load_python),
    NamedData("paper:", "paper:NAME", load_paper_set),
    NamedData("irds:", "irds:ID", load_irds),
    NamedData("hf:", "hf:OWNER/NAME", load_hub),
    NamedData(TABLES, "--pairs FILE", load_table_source),
]
"""All known sources; the first that matches reads the data."""

S = TypeVar("S", bound=DataSource)


def register_source(source_class: type[S]) -> type[S]:
    """Add a data source, ahead of those already known. Use it as a class decorator.

    A class of the same name and module, as when the module is reloaded, takes the old one's place.
    """
    name = (source_class.__module__, source_class.__qualname__)
    SOURCES[:] = [known for known in SOURCES if (type(known).__module__, type(known).__qualname__) != name]
    SOURCES.insert(0, source_class())
    return source_class


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
        source: a BEIR folder, a table of pairs (CSV, TSV, JSON Lines, Parquet, Arrow, or a folder of these), a
            ``.jsonl`` file of FlagEmbedding or Tevatron, a folder or a pattern of such files, ``python:PACKAGE`` for
            the source code of an installed package (``python:stdlib`` for the standard library), ``paper:NAME`` for
            one of the paper's data sets, ``irds:ID`` or ``hf:OWNER/NAME`` for one of ir_datasets or of the Hugging
            Face hub, or anything a registered source reads.
        pairs: tables of pairs, instead of ``source``: a file, several, or files by split.
        documents: the table of documents whose ids ``pairs`` holds.
        queries: the table of queries, likewise.
        columns: the columns of a table by role, where their names are not known or others are meant.

    Raises:
        SettingError: for a path that cannot be, such as an empty one, or ``source`` and ``pairs`` both, or neither.
        DataError: if no source reads it, or for an error in the data, naming file, line, rule and value.
    """
    if isinstance(source, RetrievalData):
        return source
    text = data_source(source, pairs=pairs, documents=documents, queries=queries, columns=columns or {})
    return find_source(text).load(text)


def load_all(sources: str | Path | RetrievalData | Sequence[str | Path | RetrievalData]) -> RetrievalData:
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
        SettingError: for both, or neither; for tables of texts without pairs; and as :meth:`TableSource.of`.
    """
    given = [f"--{name}" for name, value in (("pairs", pairs), ("documents", documents), ("queries", queries)) if value]
    if source is not None and given:
        raise SettingError(f"{' '.join(given)}: not beside a data set ({shortened(str(source))}); give one of the two")
    if source is not None:
        text = str(source) if str(source).startswith(TABLES) else expand_user(source, "data")
        return _with_columns(text, columns) if columns else text
    if not pairs:
        advice = "needs --pairs FILE, the table of pairs" if given else "is missing; give a data set, or --pairs FILE"
        raise SettingError(f"{' '.join(given) or 'DATA'}: {advice}")
    return str(TableSource.of(pairs, documents or None, queries or None, columns))


def _with_columns(text: str, columns: str | Sequence[str] | Mapping[str, str | Sequence[str]]) -> str:
    """The string form of one table of pairs with its columns."""
    if not isinstance(find_source(text), TableFileOrFolder) and not text.startswith("hf:"):
        raise SettingError(f"--columns: is for tables, and {shortened(text)} is none that has columns to choose")
    return str(TableSource.of(text, columns=columns))


def find_source(text: str) -> DataSource:
    """Return what reads a data set. Reads none of it.

    Raises:
        DataError: if no source reads it.
    """
    for known in SOURCES:
        if known.matches(text):
            return known
    if text.startswith(MEMORY):
        raise DataError(f"{shortened(text)}: these data were a program's, made by RetrievalData.from_pairs; pass them")
    found = kind_of_place(Path(text))
    problem = "no such file or folder" if found is None else "not a kind of data that OPERA reads"
    if found not in (None, "a file", "a folder"):
        problem = f"is {found}"
    descriptions = [known.description for known in SOURCES]
    raise DataError(f"{shortened(text)}: {problem}; pass {', '.join(descriptions[:-1])} or {descriptions[-1]}")


def load_stored(source: str) -> RetrievalData:
    """Read a folder or file by its path alone: for data that a file names, and not the user.

    Neither registered sources nor Python packages are asked, and nothing is downloaded.

    Raises:
        InputError: as :func:`load_data`.
    """
    if source.startswith(TABLES):
        return load_tables(TableSource.parse(source))
    for known in (BeirFolder(), TrainingFiles(), TableFileOrFolder()):
        if known.matches(source):
            return known.load(source)
    raise DataError(f"{shortened(source)}: not a folder or file that OPERA reads; pass the data yourself to read them")


def stored_here(source: str) -> bool:
    """Whether a file or folder is where a source says, or each of its tables."""
    if source.startswith(TABLES):
        return all(os.path.lexists(file) for file in TableSource.parse(source).files)
    return os.path.lexists(source)


def files_read(source: str | Path | RetrievalData) -> list[Path]:
    """Return the files of a data set, which no output may replace; a folder stands for every file in it."""
    if isinstance(source, RetrievalData) and source.parts:
        return [path for part in source.parts for path in files_read(part.source)]
    text = str(source.source if isinstance(source, RetrievalData) else source)
    if text.startswith(TABLES):
        return [Path(file) for file in TableSource.parse(text).files if os.path.lexists(file)]
    text = expand_user(text, "data")
    reader = next((known for known in SOURCES if known.matches(text)), None)
    if isinstance(reader, BeirFolder):
        return [Path(text) / name for name in ("corpus.jsonl", "queries.jsonl", "qrels")]
    if isinstance(reader, TrainingFiles):
        return listed_files(text)
    if isinstance(reader, NamedData) and reader.prefix == "hf:":
        text = local_folder(text.removeprefix("hf:")) or text
    return [Path(text)] if Path(text).exists() else []
