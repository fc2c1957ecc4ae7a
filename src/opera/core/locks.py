"""Locks: only one process at a time writes a file or folder."""

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
