"""Locks, so that only one process writes a file or folder; and the cache on disk.

Users may delete the cache at any time.

An entry is a folder, ``KIND/KEY/``. The process that holds ``KIND/.KEY.lock`` writes it as
``KIND/.KEY.part`` and renames it when it is complete. The files of a large entry get their names
only when they are complete. So the next process continues from the files that a killed process
left.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout

from opera.core.arguments import user_path
from opera.core.errors import RunFolderError
from opera.core.files import finish_folder, remove, writing
from opera.core.terminal import log

LOCK_FILE = ".running"
PATIENCE = 2.0
"""Seconds to wait for a process that is about to end, such as a worker of a killed process."""


@contextmanager
def locked(path: Path, seconds: float = -1) -> Iterator[None]:
    """Hold a lock file, and remove it at the end. The system releases it if the process is killed.

    Args:
        path: the file; its folder must exist.
        seconds: how long to wait for another process before ``filelock.Timeout`` is raised;
            negative: without limit.
    """
    with FileLock(path, timeout=seconds):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # before the release: a waiting process makes its own


@contextmanager
def sole_use(folder: Path, work: str) -> Iterator[None]:
    """Hold a folder, which must exist, for this process.

    Args:
        folder: the folder.
        work: the process's work, for the message in other processes, such as ``"trains into it"``.

    Raises:
        RunFolderError: if another process holds the folder; the message has its id.
    """
    path = folder / LOCK_FILE
    try:
        with locked(path, PATIENCE):
            path.write_text(f"process {os.getpid()} on {socket.gethostname()} {work}")
            yield
    except Timeout:
        holder = path.read_text(errors="replace") if path.is_file() else ""
        raise RunFolderError(
            f"--out {folder}: {holder or 'another process uses it'}; wait until it is done, "
            "stop it, or pass another folder"
        ) from None


def refuse_in_use(folder: Path) -> None:
    """Reject a folder that another process holds. Remove the lock of a killed process.

    Raises:
        RunFolderError: with the process that holds the folder.
    """
    if (folder / LOCK_FILE).is_file():
        with sole_use(folder, "looks at it"):
            pass


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
