"""Folders that one process at a time may write."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from opera.core.errors import RunFolderError
from opera.core.reading import read_json

LOCK_FILE = ".running"
PATIENCE = 2.0
"""Seconds to wait for a process that is about to end, such as a worker of one that was killed."""


@contextmanager
def sole_use(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder, which must exist, for this process. The system releases it when the process
    ends, however it ends.

    Args:
        folder: the folder.
        what: what the process does there, for the message to others, such as ``"trains into this
            folder"``.

    Raises:
        RunFolderError: if another process holds the folder; the message names it.
    """
    path = folder / LOCK_FILE
    lock = _acquired(path)
    try:
        path.write_text(
            json.dumps({"process": os.getpid(), "host": socket.gethostname(), "what": what})
        )
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: who waits for it makes a new one
        lock.release()


def refuse_in_use(folder: Path) -> None:
    """Refuse a folder that another process holds. Writes nothing; removes the lock that a killed
    process left.

    Raises:
        RunFolderError: naming the process.
    """
    path = folder / LOCK_FILE
    if path.is_file():
        lock = _acquired(path)
        with suppress(OSError):  # a folder that may not be written is refused elsewhere
            path.unlink()
        lock.release()


def _acquired(path: Path) -> FileLock:
    lock = FileLock(path, timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout:
        raise RunFolderError(
            f"--out {path.parent}: {_holder(path)}; "
            "wait until it is done, stop it, or give another folder"
        ) from None
    except OSError as error:  # such as a link in the place of the lock
        reason = (error.strerror or str(error)).lower()
        raise RunFolderError(f"{path}: cannot be locked ({reason}); remove it") from None
    return lock


def _holder(path: Path) -> str:
    """Describe the process that holds a lock."""
    try:
        holder = read_json(path)
        return f"process {holder['process']:d} on {holder['host']} {holder['what']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process uses this folder"
