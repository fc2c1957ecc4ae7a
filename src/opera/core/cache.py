"""The cache on disk. Users may delete it at any time.

An entry is a folder, ``KIND/KEY/``. The process that holds ``KIND/.KEY.lock`` writes it as
``KIND/.KEY.part`` and renames it when it is complete. The files of a large entry get their names
only when they are complete. So the next process continues from the files that a killed process
left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from opera.core.files import finish_folder, remove, writing
from opera.core.locks import locked
from opera.core.paths import user_path
from opera.core.terminal import log

WHERE = " (in the cache, which OPERA_CACHE can move)"


def cache_folder() -> Path:
    """Return the folder of the cache: ``$OPERA_CACHE``, or the user's cache folder."""
    variable = os.environ.get("OPERA_CACHE")
    return (
        user_path(variable, "OPERA_CACHE")
        if variable
        else Path(platformdirs.user_cache_dir("opera"))
    )


def entry(kind: str, key: str) -> Path | None:
    """Return the folder of an entry, or ``None`` if there is none."""
    folder = cache_folder() / kind / key
    return folder if folder.is_dir() else None


def cached(
    kind: str, key: str, write: Callable[[Path, list[str]], Any], names: Sequence[str] = ()
) -> Path:
    """Return the folder of an entry. If it is absent, one process writes it and the others wait.

    If the process is killed, or ``write`` raises, complete files of ``names`` stay, and the next
    call continues from there.

    Args:
        kind: the kind of contents, such as ``vectors``.
        key: hex digest of everything that decides the contents.
        write: gets a folder and the missing files of ``names``. A file must get its name only when
            it is complete.
        names: the entry's files, if they are known in advance.

    Raises:
        StorageError: if the cache cannot be written, for example because the disk is full.
    """
    folder = cache_folder() / kind / key
    if not folder.is_dir():
        with writing(Path(folder.anchor), WHERE):
            folder.parent.mkdir(parents=True, exist_ok=True)
        lock = locked(folder.with_name(f".{key}.lock"))
        with writing(folder.parent, WHERE), lock:  # wait for the process that writes it
            if not folder.is_dir():
                _write_entry(folder, names, write)
    return folder


def _write_entry(
    folder: Path, names: Sequence[str], write: Callable[[Path, list[str]], Any]
) -> None:
    """Write an entry. The caller holds its lock."""
    temporary = folder.with_name(f".{folder.name}.part")
    temporary.mkdir(exist_ok=True)
    complete = {
        path.name
        for path in temporary.iterdir()
        if path.name in names and path.stat().st_size  # a power cut leaves empty files
    }
    if complete:
        note = "note: an interrupted run left %d of %d files, which are used: %s"
        log.info(note, len(complete), len(names), folder)
    for path in temporary.iterdir():
        if path.name not in complete:
            remove(path)
    missing = [name for name in names if name not in complete]
    try:
        if missing or not names:
            write(temporary, missing)
        finish_folder(temporary)
    except BaseException:
        if not any((temporary / name).exists() for name in names):
            remove(temporary)
        raise
    temporary.rename(folder)
