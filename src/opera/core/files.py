"""Write files whole or not at all, and never over what must not be lost."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from opera.core.errors import SettingError
from opera.core.paths import kind_of_place
from opera.core.storage import writing
from opera.core.terminal import shortened

MAX_NAME = 200
"""Characters of a name kept in the name of a temporary file, which must not be too long for the file system."""


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a temporary file beside ``path``, then move it to ``path`` atomically. Its mode follows the umask.

    Raises:
        StorageError: if it cannot be written, as where the disk is full.
    """
    temporary = temporary_beside(path)
    with writing(path.parent):
        try:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # the kernel applies the umask
            write(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """Return a free name beside ``path``, for what then takes its place: ``.NAME-`` and 16 random digits."""
    name = os.fsencode(path.name)[:MAX_NAME].decode("utf-8", "ignore")
    return path.with_name(f".{name}-{secrets.token_hex(8)}")


def check_output(
    path: Path,
    name: str,
    suffixes: Sequence[str],
    *,
    overwrite: bool,
    reads: Iterable[Path] = (),
    ours: Callable[[Path], bool] = lambda _: False,
) -> None:
    """Check, before any work, that an output file can be written and that nothing is lost by it.

    Args:
        path: the file to write.
        name: of its option, for the message.
        suffixes: the suffixes that name a format.
        overwrite: whether a file there may be replaced.
        reads: files that the command reads, which are never replaced; a folder stands for every file in it.
        ours: whether a file there was written by the same command and may be replaced without ``overwrite``.

    Raises:
        SettingError: naming the rule and what to do.
    """
    place = f"{name} {shortened(str(path))}"
    if path.suffix not in suffixes:
        raise SettingError(f"{place}: must end in {' or '.join(suffixes)}; the suffix decides the format")
    folder = path.parent
    if not folder.is_dir():
        raise SettingError(f"{place}: its folder does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingError(f"{place}: its folder cannot be written to")
    found = kind_of_place(path)
    if found is None and not path.is_symlink():
        return
    if found not in ("a file", None):
        raise SettingError(f"{place}: is {found}; pass a file")
    if ours(path):
        return
    if found is not None and (read := _same_file(path, reads)):
        raise SettingError(f"{place}: is {shortened(str(read))}, which this command reads; pass another file")
    if not overwrite:
        raise SettingError(f"{place}: exists; pass --overwrite to replace it, or another file")


def _same_file(path: Path, reads: Iterable[Path]) -> Path | None:
    """Return the file among ``reads`` that is the same as ``path``, by whatever links."""
    this = _identity(path)
    return next((file for read in reads for file in _files(read) if _identity(file) == this), None)


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a folder, linked folders followed once; of a file itself."""
    waiting, seen = [path], set()
    while waiting:
        place = waiting.pop()
        identity = _identity(place)
        if not place.is_dir():
            yield place
        elif identity not in seen:
            seen.add(identity)
            waiting += sorted(place.iterdir())


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and number of a file, links followed; ``None`` where there is none that can be looked up."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
