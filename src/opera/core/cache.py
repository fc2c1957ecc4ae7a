"""The cache on disk. All of it can be deleted at any time.

An entry is a folder, ``KIND/KEY/``. It is written as ``KIND/.KEY.part`` by the process that holds
``KIND/.KEY.lock``, and renamed once it is complete. The files of a large entry appear under their
names only when they are complete, so that the next process goes on from what a killed one left.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from opera.core.errors import SettingError
from opera.core.files import finish_folder, remove, unfinished
from opera.core.paths import user_path
from opera.core.storage import ADVICE, storage_error, writing

log = logging.getLogger("opera")

KEPT_SECONDS = 30 * 24 * 3600
"""How long an unfinished entry waits for a process that completes it."""
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
    """Return the folder of an entry. If it is absent, one process makes it and the others wait.

    If the process is killed, or ``write`` raises, complete files of ``names`` stay, and the next
    call goes on from there.

    Args:
        kind: what the entry holds, such as ``vectors``.
        key: hex digest of everything that decides its contents.
        write: gets a folder and which of ``names`` are missing there. Each of them must appear
            under its name only when it is complete.
        names: the entry's files, if they are known before.

    Raises:
        SettingError: if the folder of the cache cannot be used.
        StorageError: if the entry cannot be written, for example because the disk is full.
    """
    folder = cache_folder() / kind / key
    if not folder.is_dir() or _lock(folder).exists():  # of a killed process, or of one at work
        with _locked(folder):
            if not folder.is_dir():
                with writing(folder.parent, WHERE):
                    _make(folder, names, write)
    return folder


def _make(folder: Path, names: Sequence[str], write: Callable[[Path, list[str]], Any]) -> None:
    """Make an entry; the caller holds its lock."""
    for leftover in folder.parent.glob(".*.part"):
        if time.time() - leftover.lstat().st_mtime > KEPT_SECONDS:
            remove(leftover)
    temporary = unfinished(folder)
    temporary.mkdir(exist_ok=True)
    complete = {
        path.name
        for path in temporary.iterdir()
        if path.name in names and path.stat().st_size  # a power cut leaves empty files
    }
    if complete:
        words = "note: %d of %d files are there from a run that was broken off: %s"
        log.info(words, len(complete), len(names), folder)
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


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an entry: wait for the process that makes it."""
    path = _lock(folder)
    lock = FileLock(path)
    try:
        _make_kind(folder.parent)
        lock.acquire()
    except OSError as error:
        if error.errno in ADVICE:
            raise storage_error(folder, error, WHERE) from None
        reason = f"{error.filename or path}: {(error.strerror or str(error)).lower()}"
        raise SettingError(
            f"OPERA_CACHE={cache_folder()}: cannot be used as the cache ({reason}); set "
            "OPERA_CACHE to a folder that can be written"
        ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: processes that wait make a new one
        lock.release()


def _make_kind(folder: Path) -> None:
    """Make the folder of a kind of entries; users who may write to the cache may write there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode))


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")
