"""Folders that one process at a time may write."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from opera.core.errors import RunFolderError
from opera.core.reading import read_json

LOCK_FILE = ".running"
TURN_FILE = ".opening"
PATIENCE = 2.0
"""Seconds to wait for a process that is about to end, such as a worker of one that was killed."""
LONGEST_TURNS = 120.0
"""Seconds to wait for the short turns of all others."""


@contextmanager
def sole_use(
    folder: Path, what: str, file: str = LOCK_FILE, patience: float | None = None
) -> Iterator[None]:
    """Hold a folder, which must exist, for this process. The system releases it when the process
    ends, however it ends.

    Args:
        folder: the folder.
        what: what the process does there, for the message to others, such as ``"trains into this
            folder"``.
        file: name of the lock.
        patience: seconds to wait for another process; :data:`PATIENCE` unless given.

    Raises:
        RunFolderError: if another process holds the folder; the message names it.
    """
    path = folder / file
    lock = _acquired(path, patience)
    try:
        path.write_text(
            json.dumps({"process": os.getpid(), "host": socket.gethostname(), "what": what})
        )
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: who waits for it makes a new one
        lock.release()


def own_turn(folder: Path) -> AbstractContextManager[None]:
    """Hold a folder for a moment: processes that start together do so one after another."""
    return sole_use(folder, "opens this folder", TURN_FILE, LONGEST_TURNS)


def refuse_in_use(folder: Path, patience: float | None = None) -> None:
    """Refuse a folder that another process holds. Writes nothing; removes the lock that a killed
    process left.

    Raises:
        RunFolderError: naming the process.
    """
    path = folder / LOCK_FILE
    if path.is_file():
        lock = _acquired(path, patience)
        with suppress(OSError):  # a folder that may not be written is refused elsewhere
            path.unlink()
        lock.release()


def in_use(folder: Path) -> bool:
    """Whether another process holds a folder, without waiting for it to end."""
    try:
        refuse_in_use(folder, patience=0)
    except RunFolderError:
        return True
    return False


def _acquired(path: Path, patience: float | None) -> FileLock:
    lock = FileLock(path, timeout=PATIENCE if patience is None else patience)
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
