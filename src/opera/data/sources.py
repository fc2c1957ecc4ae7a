"""The data sources of ``load_data``.

Register your own source with one line above its class::

    @register_source
    class MySource: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from opera.core.arguments import RUN_FILE, kind_of_place
from opera.core.errors import DataError, SettingError
from opera.core.terminal import shortened, shown
from opera.data.add_tables import add_tables
from opera.data.columns import Columns, TableKind
from opera.data.hub_source import load_hub
from opera.data.irds_source import load_irds
from opera.data.names import (
    EXAMPLE,
    MEMORY,
    DataName,
    TableSource,
    source_name,
    source_title,
)
from opera.data.numbering import TextNumbering, load_relation
from opera.data.python_source import load_python
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, digest_files
from opera.data.table_files import (
    TABLE_SUFFIXES,
    files_in,
    files_of_beir,
    open_pairs,
    open_texts,
    path_below,
    table_suffix,
)
from opera.data.tables import Table
from opera.data.trainer_formats import read_trainer_files, trainer_files


class DataSource(Protocol):
    """One kind of data.

    Attributes:
        description: the user's argument, for error messages, such as ``"a .csv file"``.
    """

    description: str

    def matches(self, source: str) -> bool:
        """Whether this class reads ``source``. Must be cheap and never raise."""

    def load(self, source: str) -> RetrievalData:
        """Read ``source``.

        Raises:
            DataError: with file, line, rule and value.
        """


@dataclass
class ShippedSource:
    """Files of one kind, or data behind a prefix.

    Attributes:
        kind: a kind of :func:`kind_of_files`, or a prefix, such as ``"python:"``.
        description: see :class:`DataSource`.
        read: loads the path, or the text after the prefix.
    """

    kind: str
    description: str
    read: Callable[[str], RetrievalData]

    def matches(self, source: str) -> bool:
        """Whether ``source`` has this kind."""
        if self.kind.endswith(":"):
            return source.startswith(self.kind)
        return kind_of_files(source) == self.kind

    def load(self, source: str) -> RetrievalData:
        """Read the data without running or importing code."""
        return self.read(source.removeprefix(self.kind) if self.kind.endswith(":") else source)


def kind_of_files(source: str) -> str | None:
    """Return the kind of a path: ``trainer``, or ``tables`` (also for BEIR). Never raises."""
    # pathlib raises an error for a long name
    is_folder = os.path.isdir(source)  # noqa: PTH112
    if not (is_folder or os.path.isfile(source)):  # noqa: PTH113
        return None
    is_table = is_folder or table_suffix(Path(source)) in TABLE_SUFFIXES
    return "trainer" if trainer_files(source) else "tables" if is_table else None


def load_table_source(tables: TableSource) -> RetrievalData:
    """Load tables of files, or a data set of the hub whose columns the user names.

    Raises:
        SettingError: for a data set of the hub together with other tables.
    """
    names = [path for path in tables.files if path.startswith("hf:")]
    if names and len(tables.files) > 1:
        raise SettingError(
            f"{names[0]}: a data set of the hub cannot be combined with other tables; pass it alone"
        )
    if names:
        return load_hub(names[0].removeprefix("hf:"), tables, tables.columns)
    return load_tables(tables)


def load_tables(tables: TableSource, source: DataName | None = None) -> RetrievalData:
    """Load a data set of tables; ``source`` is the user's argument, if it is a file or an example.

    Raises:
        DataError: with file, line or row, rule and value.
    """
    source, tables = source or tables, files_of_beir(tables)
    paths = [(role, Path(path)) for role, path in tables.roles]
    read_files = [(role, path, file) for role, path in paths for file in files_in(path)]
    below = [(role, path_below(file, path).as_posix()) for role, path, file in read_files]
    files = [file for _, _, file in read_files]
    salt = f"tables\0{below}\0{tables.columns}\0{tables.encoding}\0{tables.skip_bad_rows}"

    def read(relation: Relation, builder: DataBuilder) -> None:
        pairs = add_files(relation, tables)
        TextNumbering(relation, builder, pairs[0].name).build()

    path = Path(source_title(source))
    name = source_name(source) or path.name or path.resolve().name
    key = digest_files(files, salt)
    return load_relation(key, name, source, read, skip_bad_rows=tables.skip_bad_rows)


def add_files(relation: Relation, tables: TableSource) -> list[Table]:
    """Add the tables in files to a relation, and return those of pairs."""
    columns = Columns(tables.columns)
    how = columns, relation.notes, tables.encoding
    texts: dict[TableKind, list[Table]] = {}
    if tables.documents is not None:
        texts["documents"] = open_texts(tables.documents, "documents", *how)
    if tables.queries is not None:
        texts["queries"] = open_texts(tables.queries, "queries", *how)
    pairs = open_pairs(tables.pairs, *how)
    add_tables(relation, texts, pairs, columns)
    return [table for _, table in pairs]


def load_trainer_files(source: str) -> RetrievalData:
    """Load files of FlagEmbedding, Tevatron or DPR."""
    files = sorted(trainer_files(source))
    path = Path(source)
    name = path.stem if path.is_file() else path.resolve().name
    read = partial(read_trainer_files, source)
    return load_relation(digest_files(files, "trainers"), name, source, read, skip_bad_rows=None)


def load_example(name: str) -> RetrievalData:
    """Load a data set that comes with OPERA by its name without the prefix.

    Raises:
        DataError: if OPERA has no such data set.
    """
    files = {file.stem: file for file in (Path(__file__).parent / "examples").glob("*.csv")}
    if name not in files:
        raise DataError(f"{EXAMPLE}{shown(name)[1:-1]}: must be example:{' or '.join(files)}")
    return load_tables(TableSource.of(files[name]), f"{EXAMPLE}{name}")


LOCAL = [
    ShippedSource(
        "tables",
        "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), a table of pairs (.csv, .tsv, "
        ".jsonl, .parquet, .arrow, .xlsx, or a folder of these)",
        lambda source: load_tables(TableSource.of(source), source),
    ),
    ShippedSource(
        "trainer", "a file or a folder of FlagEmbedding, Tevatron or DPR", load_trainer_files
    ),
    ShippedSource(EXAMPLE, "example:faq", load_example),
]
"""The sources of paths. They download nothing."""
SOURCES: list[DataSource] = [
    *LOCAL,
    ShippedSource("python:", "python:PACKAGE", load_python),
    ShippedSource("irds:", "irds:ID", load_irds),
    ShippedSource("hf:", "hf:OWNER/NAME", load_hub),
]
"""All known sources. The first source that matches reads the data."""

NOT_LOCAL = "not a local folder or file that OPERA reads; pass the data yourself"
S = TypeVar("S", bound=DataSource)


def register_source(source_class: type[S]) -> type[S]:
    """Add a data source before all known sources. Use it as a class decorator.

    A class with the same name and module replaces the old class, for example on a module reload.

    Examples:
        >>> @register_source
        ... class TwoPairs:
        ...     description = "two pairs, always the same"
        ...
        ...     def matches(self, source):
        ...         return source == "two-pairs"
        ...
        ...     def load(self, source):
        ...         return opera.load_data(pairs=[("one", "first text"), ("two", "second text")])
        >>> opera.load_data("two-pairs").counts()["documents"]
        2
    """
    name = (source_class.__module__, source_class.__qualname__)
    SOURCES[:] = [
        known for known in SOURCES if (type(known).__module__, type(known).__qualname__) != name
    ]
    SOURCES.insert(0, source_class())
    return source_class


def find_source(text: str, sources: Sequence[DataSource] | None = None) -> DataSource:
    """Return the source that reads a data set, without reading the data.

    ``sources`` are :data:`SOURCES`, or :data:`LOCAL` if a file contains the path.

    Raises:
        DataError: if no source reads it.
    """
    registered = [known for known in SOURCES if not isinstance(known, ShippedSource)]
    if sources is not None and any(known.matches(text) for known in registered):
        raise DataError(
            f"{shortened(text)}: a registered source reads it, which OPERA uses only for data that "
            "you pass; pass the data yourself"
        )
    if os.path.isfile(f"{text}/{RUN_FILE}"):  # noqa: PTH113 - pathlib raises for a long name
        raise DataError(f"{shortened(text)}: is a run, not data; pass the data that it trained on")
    for known in sources or SOURCES:
        if known.matches(text):
            return known
    if text.startswith(MEMORY):
        raise DataError(
            f"{shortened(text)}: these data were passed in memory, as a DataFrame is; pass "
            "them again, or save them to a file and pass the file"
        )
    kind = kind_of_place(Path(text))
    if sources is not None:
        problem = "no such file or folder" if kind is None and ":" not in text else NOT_LOCAL
        raise DataError(f"{shortened(text)}: {problem}")
    problem = "no such file or folder" if kind is None else "not a kind of data that OPERA reads"
    if kind not in (None, "a file", "a folder"):
        problem = f"is {kind}"
    shipped_first = sorted(SOURCES, key=lambda known: not isinstance(known, ShippedSource))
    descriptions = ", ".join(known.description for known in shipped_first)
    raise DataError(f"{shortened(text)}: {problem}; pass {descriptions} or --pairs FILE")


def load_source(name: DataName, sources: Sequence[DataSource] | None = None) -> RetrievalData:
    """Read a data set from its source. Arguments and errors are those of :func:`find_source`."""
    if isinstance(name, TableSource):
        return load_table_source(name)
    return find_source(name, sources).load(name)
