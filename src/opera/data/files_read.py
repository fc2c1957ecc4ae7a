"""Load data by a path that a file contains, and list the files of a data set."""

from __future__ import annotations

import os
from pathlib import Path

from opera.core.cache import cache_folder
from opera.core.errors import SettingError
from opera.core.paths import expand_user
from opera.core.terminal import place as place_of
from opera.data.combined import each_set
from opera.data.hub_source import HubName
from opera.data.names import TABLES
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import STORED, find_source
from opera.data.table_files import BEIR_FILES, TableSource, is_beir


def load_stored(source: str) -> RetrievalData:
    """Read a folder or file whose path comes from a file and not from the user.

    So OPERA uses no registered source and no Python package, and downloads nothing.

    Raises:
        InputError: as :func:`load_data`.
    """
    check_cache_stays_out(source)
    return find_source(source, STORED).load(source)


def files_read(source: str | Path | RetrievalData) -> list[Path]:
    """Return the files and folders of a data set, which no output may replace."""
    sources = [str(source)]
    if isinstance(source, RetrievalData):
        sources = [part.source for part in each_set(source)]
    paths: list[Path] = []
    for text in sources:
        tables = TableSource.parse(text).files if text.startswith(TABLES) else None
        for place in tables or [expand_user(text, "data")]:
            if place.startswith("hf:"):
                name = HubName.parse(place.removeprefix("hf:"))
                paths += name.folders if name.local else ()
            elif is_beir(place):
                paths += [Path(place, name) for name in BEIR_FILES]
            else:
                paths.append(Path(place))
    return [path for path in paths if os.path.lexists(path)]


def check_stays_out(place: Path, name: str, source: str | Path | RetrievalData) -> None:
    """Check that the output is outside the data, so that it does not become data itself.

    Args:
        place: the output.
        name: the option of the output, for the message.
        source: the data set.

    Raises:
        SettingError: with the folder of the data.
    """
    for home in files_read(source):
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
