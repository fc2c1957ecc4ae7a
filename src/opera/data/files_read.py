"""Data that a file names, loaded by their path alone; and the files that data are read from."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

from opera.core.cache import cache_folder
from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user, kind_of_place
from opera.core.terminal import place as place_of
from opera.core.terminal import shortened
from opera.data.combined import each_set
from opera.data.hub_source import local_folder
from opera.data.names import TABLES
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import LOCAL, kind_of_files, load_tables, refuse_memory
from opera.data.table_files import TableSource
from opera.data.trainer_formats import is_pattern, listed_files


def load_stored(source: str) -> RetrievalData:
    """Read a folder or file by its path alone: for data that a file names, and not the user.

    Neither registered sources nor Python packages are asked, and nothing is downloaded.

    Raises:
        InputError: as :func:`load_data`.
    """
    check_cache_stays_out(source)
    if source.startswith(TABLES):
        return load_tables(TableSource.parse(source))
    refuse_memory(source)
    for known in LOCAL:
        if known.matches(source):
            return known.load(source)
    if ":" not in source and kind_of_place(Path(source)) is None:
        raise DataError(f"{shortened(source)}: no such file or folder")
    raise DataError(
        f"{shortened(source)}: not a folder or file that OPERA reads; pass the data yourself "
        "to read them"
    )


def files_read(source: str | Path | RetrievalData) -> list[Path]:
    """Return the files of a data set, which no output may replace; a folder stands for its own."""
    paths: list[Path] = []
    for place in _places(source):
        kind = kind_of_files(place)
        if kind == "beir":
            names = ("corpus.jsonl", "queries.jsonl", "qrels")
            paths += [Path(place) / name for name in names]
        elif kind == "trainer":
            paths += listed_files(place)
        else:
            hub = local_folder(place.removeprefix("hf:")) if place.startswith("hf:") else None
            paths += [Path(hub or place)] if os.path.lexists(hub or place) else []
    return paths


def _places(source: str | Path | RetrievalData) -> list[str]:
    """What a data set is read from: paths, patterns and names."""
    sources = [str(source)]
    if isinstance(source, RetrievalData):
        sources = [part.source for part in each_set(source)]
    return [
        place
        for text in sources
        for place in (
            TableSource.parse(text).files
            if text.startswith(TABLES)
            else [expand_user(text, "data")]
        )
    ]


def check_stays_out(
    place: Path, name: str, source: str | Path | RetrievalData, *, folder: bool
) -> None:
    """Check that nothing that is written to a place becomes data of a set that is read.

    Args:
        place: the output.
        name: of its option, for the message.
        source: the data set.
        folder: whether ``place`` is a folder, for files of many kinds.

    Raises:
        SettingError: naming the folder of the data.
    """
    for read_place in _places(source):
        if (home := _home_of_data(read_place, place, folder)) is not None:
            raise SettingError(
                f"{name} {place_of(place)}: lies in {place_of(home)}, which is read as data, so "
                "what is written there would be data too; pass another place"
            )


def check_cache_stays_out(source: str) -> None:
    """Check that the cache does not lie in data, and that data are not the folder ``data`` in it.

    Raises:
        SettingError: as :func:`check_stays_out`.
    """
    for place in (cache_folder(), cache_folder() / "data" / "*"):
        check_stays_out(place, "OPERA_CACHE", source, folder=True)


def _home_of_data(source: str, place: Path, folder: bool) -> Path | None:
    """Return the folder that is read as data and that ``place`` lies in; ``None`` if in none."""
    if is_pattern(source):
        parts, wanted = Path(os.path.realpath(place)).parts, Path(os.path.realpath(source)).parts
        fits = len(wanted) > len(parts) if folder else len(wanted) == len(parts)
        return Path(source) if fits and all(map(fnmatch, parts, wanted)) else None
    homes = [source]
    if source.startswith("hf:"):
        hub = local_folder(source.removeprefix("hf:"))
        homes = [] if hub is None else [hub, f"{hub}-qrels"]
    for home in filter(os.path.isdir, homes):
        try:
            parts = Path(os.path.realpath(place)).relative_to(os.path.realpath(home)).parts
        except (OSError, ValueError):  # elsewhere; or the current folder has been deleted
            continue
        hidden = any(part.startswith(".") for part in parts)
        kind = kind_of_files(home) if home == source else None
        beside = kind == "beir" or (kind == "trainer" and (folder or len(parts) > 1))
        if parts and not hidden and not (beside and parts[0] != "qrels"):
            return Path(home)
    return None
