"""Write files whole or not at all."""

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
    """Write a temporary file beside ``path``, then move it to ``path`` atomically."""
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
    """Write a file unless it exists; if another process is writing it, wait for that file."""
    if path.exists():
        return
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        with suppress(OSError):  # no locks on this file system: both processes write the same file
            fcntl.flock(file, fcntl.LOCK_EX)
        if not path.exists():
            replace_file(path, write)
        lock.unlink(missing_ok=True)


def check_suffix(path: Path, known: Sequence[str]) -> None:
    """Check that an output file has a known suffix and that its folder exists.

    Raises:
        SettingError: naming the known suffixes, or the missing folder.
    """
    if path.suffix not in known:
        raise SettingError(f"{path}: must end in {' or '.join(known)}; the suffix decides the format")
    if not path.parent.is_dir():
        raise SettingError(f"{path}: its folder does not exist; create it first")
