"""Files and folders that one process at a time may write."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from opera.core.errors import RunFolderError

LOCK_FILE = ".running"
PATIENCE = 2.0
"""Seconds to wait for a process that is about to end, such as a worker of one that was killed."""


@contextmanager
def locked(path: Path, seconds: float = -1) -> Iterator[None]:
    """Hold a lock file, which is removed at the end. The system releases it when the process ends,
    however it ends.

    Args:
        path: the file; its folder must exist.
        seconds: how long to wait for another process, which then raises ``filelock.Timeout``;
            without end if negative.
    """
    with FileLock(path, timeout=seconds):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is held: processes that wait make a new one


@contextmanager
def sole_use(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder, which must exist, for this process.

    Args:
        folder: the folder.
        what: what the process does there, for the message to others, such as ``"trains into it"``.

    Raises:
        RunFolderError: if another process holds the folder; the message names it.
    """
    path = folder / LOCK_FILE
    try:
        with locked(path, PATIENCE):
            path.write_text(f"process {os.getpid()} on {socket.gethostname()} {what}")
            yield
    except Timeout:
        holder = path.read_text(errors="replace") if path.is_file() else ""
        raise RunFolderError(
            f"--out {folder}: {holder or 'another process uses it'}; wait until it is done, "
            "stop it, or pass another folder"
        ) from None


def refuse_in_use(folder: Path) -> None:
    """Refuse a folder that another process holds. Writes nothing; removes the lock that a killed
    process left.

    Raises:
        RunFolderError: naming the process.
    """
    if (folder / LOCK_FILE).is_file():
        with sole_use(folder, "looks at it"):
            pass
