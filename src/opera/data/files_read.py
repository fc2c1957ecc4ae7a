"""Load data by a path that a file contains, and list the files of a data set."""

from __future__ import annotations

import os
from pathlib import Path

from opera.core.cache import cache_folder
from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user, kind_of_place
from opera.core.terminal import place as place_of
from opera.core.terminal import shortened
from opera.data.beir import BEIR_FILES, is_beir
from opera.data.combined import each_set
from opera.data.hub_source import HubName
from opera.data.names import TABLES
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import LOCAL, load_tables, refuse_memory
from opera.data.table_files import TableSource


def load_stored(source: str) -> RetrievalData:
    """Read a folder or file whose path comes from a file and not from the user.

    So OPERA uses no registered source and no Python package, and downloads nothing.

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
    problem = "not a local folder or file that OPERA reads; pass the data yourself"
    if ":" not in source and kind_of_place(Path(source)) is None:
        problem = "no such file or folder"
    raise DataError(f"{shortened(source)}: {problem}")


def files_read(source: str | Path | RetrievalData) -> list[Path]:
    """Return the files and folders of a data set, which no output may replace."""
    paths: list[Path] = []
    for place in _places(source):
        beir = is_beir(place)
        paths += [Path(place) / name for name in BEIR_FILES] if beir else _existing(place)
    return paths


def check_stays_out(place: Path, name: str, source: str | Path | RetrievalData) -> None:
    """Check that the output is outside the data, so that it does not become data itself.

    Args:
        place: the output.
        name: the option of the output, for the message.
        source: the data set.

    Raises:
        SettingError: with the folder of the data.
    """
    for read_place in _places(source):
        beir = is_beir(read_place)
        for home in [Path(read_place, "qrels")] if beir else _existing(read_place):
            target, data = Path(os.path.realpath(place)), Path(os.path.realpath(home))
            below = target.relative_to(data).parts if target.is_relative_to(data) else ()
            if below and data.is_dir() and not any(part.startswith(".") for part in below):
                raise SettingError(
                    f"{name} {place_of(place)}: is inside {place_of(home)}, which OPERA reads as "
                    "data; pass a folder outside the data"
                )


def check_cache_stays_out(source: str) -> None:
    """Check that the cache is outside the data.

    Raises:
        SettingError: as :func:`check_stays_out`.
    """
    check_stays_out(cache_folder(), "OPERA_CACHE", source)


def _places(source: str | Path | RetrievalData) -> list[str]:
    """The paths and names of a data set's sources."""
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


def _existing(place: str) -> list[Path]:
    """The existing paths of a source."""
    paths: tuple[Path, ...] = (Path(place),)
    if place.startswith("hf:"):
        name = HubName.parse(place.removeprefix("hf:"))
        paths = name.folders if name.local else ()
    return [path for path in paths if os.path.lexists(path)]
