"""Write files whole or not at all, and never over what must not be lost."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from opera.core.errors import RunFolderError, SettingError
from opera.core.paths import kind_of_place
from opera.core.storage import writing
from opera.core.strict_json import read_json
from opera.core.terminal import place

PATH_MAX, ROOM = 4096, 500
"""Bytes of a path that Linux takes, and those kept for the names of files and folders below a run or a grid."""
MAX_NAME = 200
"""Characters of a name kept in the name of a temporary file, which must not be too long for the file system."""
DIGITS = 16
"""Random digits at the end of such a name."""
LIST_FILE = ".written.json"
"""In a folder that OPERA wrote: the names of the files that it may replace, remove and upload there."""
NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""What file systems and old kernels say that cannot make files without a name."""

T = TypeVar("T")


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


def replace_folder(home: Path, write: Callable[[Path], T], later: Sequence[str] = ()) -> T:
    """Write a folder under a temporary name; once it is whole, it takes the place of what OPERA wrote there before.

    What others put there stays, and a link to a folder stays a link. The temporary folder is locked as
    :func:`replace_file` locks its file, and the next call removes what a killed process left.

    Args:
        home: the folder.
        write: fills the empty folder that it is given. If it raises, ``home`` stays as it was.
        later: names of files that are written there afterwards.

    Returns:
        What ``write`` returned.

    Raises:
        RunFolderError: if a file that OPERA did not write has the name of a new one.
        StorageError: if it cannot be written, as where the disk is full.
    """
    home = home.resolve()
    with writing(home.parent, final=home):
        home.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(home)
        temporary, held = _locked_temporary(home, folder=True)
        try:
            made = write(temporary)
            for file in _regular_files(temporary):  # safetensors' files are for their owner alone
                file.chmod(temporary.stat().st_mode & 0o666)
            list_written(temporary, later)
            _take_place(temporary, home)
        finally:
            shutil.rmtree(
                temporary, ignore_errors=True
            )  # frees the space; after a success there is nothing
            os.close(held)
    return made


def list_written(folder: Path, later: Sequence[str] = ()) -> None:
    """List all files of a folder as written by OPERA, and those that are written there later."""
    names = {*later, *(file.relative_to(folder).as_posix() for file in _regular_files(folder))}
    (folder / LIST_FILE).write_text(
        json.dumps(sorted(names - {LIST_FILE}), indent=0) + "\n", encoding="utf-8"
    )


def written_files(folder: Path) -> list[Path]:
    """Return the files in a folder that OPERA wrote, by the list in it, which is the last; empty where there is none.

    The list may be anyone's: it only picks among the regular files in the folder, and links are not followed.
    """
    files, listed = sorted(_regular_files(folder)), folder / LIST_FILE
    names = written_names(folder) if listed in files else set()
    ours = [
        file for file in files if file != listed and file.relative_to(folder).as_posix() in names
    ]
    return [*ours, listed] if names else []


def written_names(folder: Path) -> set[str]:
    """Return the names in the list of a folder, whatever there is under them; none where it cannot be read."""
    try:
        names = read_json(folder / LIST_FILE)
    except (OSError, ValueError):
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _take_place(temporary: Path, home: Path) -> None:
    """Move a new folder to where an old one is, of which the files that OPERA did not write stay."""
    ours = written_files(home)
    new = [file.relative_to(temporary) for file in sorted(_regular_files(temporary))]
    for name in new:
        if os.path.lexists(home / name) and home / name not in ours:
            raise RunFolderError(
                f"{place(home / name)}: was not written by OPERA and would be lost; move it away"
            )
    for file in ours[:-1]:
        file.unlink()
    remove_empty(home)
    left = [path for path in home.iterdir() if path != home / LIST_FILE] if home.is_dir() else []
    if not left:
        (home / LIST_FILE).unlink(missing_ok=True)
        temporary.rename(home)
        return
    # Until the last file is in place, what is here must say that OPERA wrote it, and must not load as a model: the list
    # comes first, and "config.json", by which a folder without "modules.json" loads, comes after that.
    (temporary / LIST_FILE).replace(home / LIST_FILE)
    for name in reversed(new):
        if name != Path(LIST_FILE):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).replace(home / name)


def _regular_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it; links are left out."""
    for root, _, names in os.walk(folder):
        for file in (Path(root, name) for name in names):
            if stat.S_ISREG(file.lstat().st_mode):
                yield file


def remove_empty(folder: Path) -> None:
    """Remove empty folders below a folder, and itself if it is empty. Those in hidden ones stay: git needs its own."""
    for root, _, _ in os.walk(folder, topdown=False):
        if not any(part.startswith(".") for part in Path(root).relative_to(folder).parts):
            with suppress(OSError):  # not empty
                Path(root).rmdir()


def _locked_temporary(path: Path, folder: bool = False) -> tuple[Path, int]:
    """Make a temporary file beside ``path``, or a folder, and lock it; returns it with its descriptor."""
    while True:
        temporary = temporary_beside(path)
        if folder:
            temporary.mkdir()
            held = os.open(temporary, os.O_RDONLY)
        else:
            held = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666
            )  # the kernel applies the umask
        _lock(held, wait=True)
        if _identity(temporary) is not None:
            return temporary, held
        os.close(
            held
        )  # before it was locked, another process took it for one that a killed process left


def unfinished_files(path: Path) -> list[Path]:
    """Return what :func:`temporary_beside` named for ``path`` and is still there, perhaps of a killed process."""
    return sorted(
        left
        for left in path.parent.glob(f"{glob.escape(_prefix(path))}*")
        if is_unfinished(left, path)
    )


def is_unfinished(file: Path, path: Path) -> bool:
    """Whether :func:`temporary_beside` may have named ``file`` for ``path``."""
    prefix = _prefix(path)
    digits = file.name.removeprefix(prefix)
    return (
        file.name.startswith(prefix) and re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", digits) is not None
    )


def _remove_unfinished(path: Path) -> None:
    """Remove temporary files and folders for ``path`` that nobody is writing any more."""
    for left in unfinished_files(path):
        with suppress(OSError):
            held = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(held):
                    remove(left)
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
        raise SettingError(
            f"{where}: must end in {' or '.join(suffixes)}; the suffix decides the format"
        )
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
    try:
        whole = path.absolute()
    except FileNotFoundError:
        raise RunFolderError(
            f"{where}: the current folder has been deleted; pass an absolute path"
        ) from None
    if len(os.fsencode(whole)) + ROOM > PATH_MAX:
        raise RunFolderError(
            f"{where}: the path is too long for the files in it; pass a shorter one"
        )
    existing = next(parent for parent in (path, *path.parents, Path()) if os.path.lexists(parent))
    if not existing.is_dir():
        raise RunFolderError(f"{where}: {place(existing)} is not a folder that can be written to")
    if reason := _unwritable(existing):
        raise RunFolderError(f"{where}: {place(existing)} cannot be written to ({reason})")


def check_reads_stay(
    folder: Path, name: str, reads: Iterable[Path], removed: Iterable[Path]
) -> None:
    """Check that a command reads nothing of what it removes from its output folder.

    Args:
        folder: the output folder.
        name: of its option, for the message.
        reads: files and folders that the command reads.
        removed: files and folders in ``folder`` that it is about to remove.

    Raises:
        RunFolderError: naming what is read.
    """
    home, gone = folder.resolve(), [place.resolve() for place in removed]
    for read in reads:
        found = read.resolve()
        if found.is_relative_to(home) and any(
            p.is_relative_to(found) or found.is_relative_to(p) for p in gone
        ):
            raise RunFolderError(
                f"{name} {place(folder)}: --overwrite would delete {place(read)}, which this "
                "command reads; pass another folder"
            )


def _unwritable(folder: Path) -> str:
    """Say why no file can be made in a folder, by making one; permissions alone do not tell. Empty if one can."""
    try:
        try:
            os.close(
                os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600)
            )  # has no name, so a kill leaves nothing
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
                return (
                    "is read by this command"
                    if file == read
                    else f"lies in {read}, which this command reads"
                )
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
