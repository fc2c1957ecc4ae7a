"""Writing files: whole or not at all, in a format that the file's name says."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opera.core.errors import SettingError


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file beside ``path`` and put it in its place in one step."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        temporary.chmod(0o644)
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_once(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file that is not there yet; a process that finds another at it waits for that one's."""
    if path.exists():
        return
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        with suppress(OSError):  # file systems without locks: it is made twice, the same both times
            fcntl.flock(file, fcntl.LOCK_EX)
        if not path.exists():
            replace_file(path, write)
        lock.unlink(missing_ok=True)


SCORE_FORMATS, NEGATIVES_FORMATS = (".parquet", ".tsv", ".jsonl"), (".jsonl", ".tsv")
"""What ``opera score`` and ``opera mine`` write."""


def check_suffix(path: Path, known: Sequence[str]) -> None:
    """Refuse an output file of a format that the command does not write, or in a folder that does not exist.

    Raises:
        SettingError: naming what it writes.
    """
    if path.suffix not in known:
        raise SettingError(f"{path}: must end in {' or '.join(known)}, which says the format")
    if not path.parent.is_dir():
        raise SettingError(f"{path}: its folder does not exist; make it first")
