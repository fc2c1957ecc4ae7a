"""Data sources: what ``load_data`` can read.

Register your own source with one line above its class::

    @register_source
    class MySource: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from opera.core.errors import DataError
from opera.core.paths import expand_user, kind_of_place
from opera.core.terminal import shortened
from opera.data.beir import load_beir
from opera.data.hub_folder import local_folder
from opera.data.hub_source import load_hub
from opera.data.irds_source import load_irds, load_paper_set
from opera.data.python_source import load_python
from opera.data.retrieval_data import RetrievalData
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
    """A folder in BEIR's format."""

    description = "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/)"

    def matches(self, source: str) -> bool:
        """Whether ``source`` is a folder that does not hold another trainer's files."""
        # Path.is_dir raises where a name is too long
        return os.path.isdir(source) and not holds_training_files(source)  # noqa: PTH112

    def load(self, source: str) -> RetrievalData:
        """Read corpus, queries and all qrels."""
        return load_beir(Path(source))


class TrainingFiles:
    """Training files of FlagEmbedding or Tevatron: one, or those of a folder or a pattern."""

    description = "a .jsonl file or a folder of FlagEmbedding or Tevatron"

    def matches(self, source: str) -> bool:
        """Whether ``source`` is a ``.jsonl`` file, or stands for some with the keys of these trainers."""
        if os.path.isfile(source):  # noqa: PTH113 - as above
            return source.lower().endswith(".jsonl")
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


SOURCES: list[DataSource] = [
    BeirFolder(),
    TrainingFiles(),
    NamedData("python:", "python:PACKAGE", load_python),
    NamedData("paper:", "paper:NAME", load_paper_set),
    NamedData("irds:", "irds:ID", load_irds),
    NamedData("hf:", "hf:OWNER/NAME", load_hub),
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


def load_data(source: str | Path | RetrievalData) -> RetrievalData:
    """Read a data set; data that is already loaded is returned as it is.

    Args:
        source: a BEIR folder, a ``.jsonl`` file of FlagEmbedding or Tevatron, a folder or a pattern of such files,
            ``python:PACKAGE`` for the source code of an
            installed package (``python:stdlib`` for the standard library), ``paper:NAME`` for one of the paper's data
            sets, ``irds:ID`` or ``hf:OWNER/NAME`` for one of ir_datasets or of the Hugging Face hub, or anything a
            registered source reads.

    Raises:
        SettingError: for a path that cannot be, such as an empty one.
        DataError: if no source reads it, or for an error in the data, naming file, line, rule and value.
    """
    if isinstance(source, RetrievalData):
        return source
    text = expand_user(source, "data")
    return find_source(text).load(text)


def find_source(text: str) -> DataSource:
    """Return what reads a data set. Reads none of it.

    Raises:
        DataError: if no source reads it.
    """
    for known in SOURCES:
        if known.matches(text):
            return known
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
    for known in (BeirFolder(), TrainingFiles()):
        if known.matches(source):
            return known.load(source)
    raise DataError(f"{shortened(source)}: not a BEIR folder or .jsonl file; pass the data yourself to read them")


def files_read(source: str | Path | RetrievalData) -> list[Path]:
    """Return the files of a data set, which no output may replace; a folder stands for every file in it."""
    text = source.source if isinstance(source, RetrievalData) else expand_user(source, "data")
    reader = next((known for known in SOURCES if known.matches(text)), None)
    if isinstance(reader, BeirFolder):
        return [Path(text) / name for name in ("corpus.jsonl", "queries.jsonl", "qrels")]
    if isinstance(reader, TrainingFiles):
        return listed_files(text)
    if isinstance(reader, NamedData) and reader.prefix == "hf:":
        text = local_folder(text.removeprefix("hf:")) or text
    return [Path(text)] if Path(text).exists() else []
