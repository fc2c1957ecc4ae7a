"""Data that a file names, and not the user: loaded by their path alone; and the files that data are read from."""

from __future__ import annotations

import os
from pathlib import Path

from opera.core.errors import DataError
from opera.core.paths import expand_user
from opera.core.terminal import shortened
from opera.data.hub_folder import local_folder
from opera.data.names import TABLES
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import SOURCES, BeirFolder, NamedData, TableFileOrFolder, TrainingFiles
from opera.data.tables.load import load_tables
from opera.data.tables.source import TableSource
from opera.data.training_files.kinds import listed_files


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
