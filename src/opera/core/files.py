"""Write files whole or not at all, and never over what must not be lost."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opera.core.errors import RunFolderError, SettingError
from opera.core.paths import kind_of_place
from opera.core.storage import writing
from opera.core.terminal import place

PATH_MAX, ROOM = 4096, 500
"""Bytes of a path that Linux takes, and those kept for the names of files and folders below a run or a grid."""
MAX_NAME = 200
"""Characters of a name kept in the name of a temporary file, which must not be too long for the file system."""
DIGITS = 16
"""Random digits at the end of such a name."""
NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""What file systems and old kernels say that cannot make files without a name."""


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a temporary file beside ``path``, then move it to ``path`` atomically. Its mode follows the umask.

    The temporary file is locked while it is written, so that the next call can tell and remove what a killed process
    left.

    Raises:
        StorageError: if it cannot be written, as where the disk is full.
    """
    with writing(path.parent, final=path):
        _remove_unfinished(path)
        temporary, held = _locked_temporary(path)
        try:
            write(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
            os.close(held)


def _locked_temporary(path: Path) -> tuple[Path, int]:
    """Make a temporary file beside ``path`` and lock it; returns it with its descriptor."""
    while True:
        temporary = temporary_beside(path)
        held = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # the kernel applies the umask
        _lock(held, wait=True)
        if _identity(temporary) is not None:
            return temporary, held
        os.close(held)  # before it was locked, another process took it for one that a killed process left


def unfinished_files(path: Path) -> list[Path]:
    """Return what :func:`temporary_beside` named for ``path`` and is still there, perhaps of a killed process."""
    return sorted(left for left in path.parent.glob(f"{glob.escape(_prefix(path))}*") if is_unfinished(left, path))


def is_unfinished(file: Path, path: Path) -> bool:
    """Whether :func:`temporary_beside` may have named ``file`` for ``path``."""
    prefix = _prefix(path)
    digits = file.name.removeprefix(prefix)
    return file.name.startswith(prefix) and re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", digits) is not None


def _remove_unfinished(path: Path) -> None:
    """Remove temporary files for ``path`` that nobody is writing any more."""
    for left in unfinished_files(path):
        with suppress(OSError):
            held = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(held):
                    left.unlink()
            finally:
                os.close(held)


def _lock(descriptor: int, wait: bool = False) -> bool:
    """Lock an open file; false if another process holds it and we do not wait, or the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _prefix(path: Path) -> str:
    name = os.fsencode(path.name)[:MAX_NAME].decode("utf-8", "ignore")
    return f".{name}-"


def remove(place: Path) -> None:
    """Remove a file, a folder, or a link but not what it leads to; nothing happens where there is nothing."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """Return a free name beside ``path``, for what then takes its place: ``.NAME-`` and 16 random digits."""
    return path.with_name(f"{_prefix(path)}{secrets.token_hex(DIGITS // 2)}")


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
    where = f"{name} {place(path)}"
    if path.suffix not in suffixes:
        raise SettingError(f"{where}: must end in {' or '.join(suffixes)}; the suffix decides the format")
    folder = path.parent
    if not folder.is_dir():
        raise SettingError(f"{where}: its folder does not exist; create it first")
    if reason := _unwritable(folder):
        raise SettingError(f"{where}: its folder cannot be written to ({reason})")
    found = kind_of_place(path)
    if found is None and not path.is_symlink():
        return
    if found not in ("a file", None):
        raise SettingError(f"{where}: is {found}; pass a file")
    if ours(path):
        return
    if found is not None and (reading := _reading(path, reads)):
        raise SettingError(f"{where}: {reading}; pass another file")
    if not overwrite:
        raise SettingError(f"{where}: exists; pass --overwrite to replace it, or another file")


def check_folder(path: Path, name: str) -> None:
    """Check, before any work, that a folder can be made or written to.

    Raises:
        RunFolderError: naming what is there instead, or the obstacle.
    """
    where = f"{name} {place(path)}"
    found = kind_of_place(path)
    if found is None and path.is_symlink():
        found = "a link to nothing"
    if found not in ("a folder", None):
        raise RunFolderError(f"{where}: is {found}; pass a folder")
    if len(os.fsencode(path.absolute())) + ROOM > PATH_MAX:
        raise RunFolderError(f"{where}: the path is too long for the files in it; pass a shorter one")
    existing = next(parent for parent in (path, *path.parents, Path()) if os.path.lexists(parent))
    if not existing.is_dir():
        raise RunFolderError(f"{where}: {place(existing)} is not a folder that can be written to")
    if reason := _unwritable(existing):
        raise RunFolderError(f"{where}: {place(existing)} cannot be written to ({reason})")


def check_reads_stay(folder: Path, name: str, reads: Iterable[Path]) -> None:
    """Check that a folder whose files are about to be replaced holds nothing that the command reads.

    Raises:
        RunFolderError: naming what is read.
    """
    home = folder.resolve()
    for read in reads:
        if read.exists() and read.resolve().is_relative_to(home):
            raise RunFolderError(
                f"{name} {place(folder)}: --overwrite would delete {place(read)}, which this "
                "command reads; pass another folder"
            )


def _unwritable(folder: Path) -> str:
    """Say why no file can be made in a folder, by making one; permissions alone do not tell. Empty if one can."""
    try:
        try:
            os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600))  # has no name, so a kill leaves nothing
        except OSError as error:
            if error.errno not in NO_TMPFILE:
                raise
            probe = temporary_beside(folder / "opera")
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            probe.unlink()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _reading(path: Path, reads: Iterable[Path]) -> str:
    """Say how a file is among those that the command reads, by whatever links; empty if it is not."""
    this = _identity(path)
    for read in reads:
        for file in _files(read):
            if _identity(file) == this:
                if file != path:
                    return f"is the same file as {place(file)}, which this command reads"
                return "is read by this command" if file == read else f"lies in {read}, which this command reads"
    return ""


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a folder, linked folders followed once; of a file itself."""
    waiting, seen = [path], set()
    while waiting:
        found = waiting.pop()
        identity = _identity(found)
        if not found.is_dir():
            yield found
        elif identity not in seen:
            seen.add(identity)
            waiting += sorted(found.iterdir())


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and number of a file, links followed; ``None`` where there is none that can be looked up."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
