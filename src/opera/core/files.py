"""Write files whole or not at all, and never over what must not be lost."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

from opera.core.errors import RunFolderError, SettingError
from opera.core.paths import kind_of_place
from opera.core.reading import read_json
from opera.core.storage import writing
from opera.core.terminal import place

if TYPE_CHECKING:
    import pyarrow as pa

PATH_MAX, ROOM = 4096, 500
"""Bytes of a path that Linux takes, and those kept for the names of files and folders below a run
or a grid."""
MAX_NAME = 200
"""Bytes of a name kept in the name of a temporary file, which must not be too long for the file
system."""
LIST_FILE = ".written.json"
"""In a folder that OPERA wrote: the names of the files that it may replace, remove and upload
there."""

T = TypeVar("T")


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a temporary file beside ``path``, then move it to ``path`` atomically. Its mode follows
    the umask.

    Raises:
        StorageError: if it cannot be written, as where the disk is full.
    """
    with writing(path.parent, final=path), _unfinished(path) as temporary:
        write(temporary)
        temporary.replace(path)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table to a Parquet file, whole or not at all.

    Arrow is given an open file: it takes a path such as ``run:1/pairs.parquet`` for an address on a
    network.
    """
    import pyarrow.parquet as pq

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            pq.write_table(table, file)

    replace_file(path, write)


def replace_folder(home: Path, write: Callable[[Path], T], later: Sequence[str] = ()) -> T:
    """Write a folder under a temporary name; once it is whole, it takes the place of what OPERA
    wrote there before.

    What others put there stays, and a link to a folder stays a link.

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
        with _unfinished(home, folder=True) as temporary:
            made = write(temporary)
            share_as_folder(temporary)
            list_written(temporary, later)
            _take_place(temporary, home)
    return made


def share_as_folder(folder: Path) -> None:
    """Let those who may read a folder read its files: safetensors' are for their owner alone."""
    for file in _regular_files(folder):
        file.chmod(folder.stat().st_mode & 0o666)


def list_written(folder: Path, later: Sequence[str] = ()) -> None:
    """List all files of a folder as written by OPERA, and those that are written there later."""
    names = {*later, *(file.relative_to(folder).as_posix() for file in _regular_files(folder))}
    (folder / LIST_FILE).write_text(
        json.dumps(sorted(names - {LIST_FILE}), indent=0) + "\n", encoding="utf-8"
    )


def written_files(folder: Path) -> list[Path]:
    """Return the files in a folder that OPERA wrote, by the list in it, which is the last; empty
    where there is none.

    The list may be anyone's: it only picks among the regular files in the folder, and links are not
    followed.
    """
    files, listed = _regular_files(folder), folder / LIST_FILE
    names = written_names(folder) if listed in files else set()
    ours = [
        file for file in files if file != listed and file.relative_to(folder).as_posix() in names
    ]
    return [*ours, listed] if names else []


def written_names(folder: Path) -> set[str]:
    """Return the names in the list of a folder, whatever there is under them; none where it cannot
    be read.
    """
    try:
        names = read_json(folder / LIST_FILE)
    except (OSError, ValueError):
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _take_place(temporary: Path, home: Path) -> None:
    """Move a new folder to the place of an old one, whose files that OPERA did not write stay."""
    ours = written_files(home)
    new = [file.relative_to(temporary) for file in _regular_files(temporary)]
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
    # Until the last file is in place, what is here must say that OPERA wrote it, and must not load
    # as a model: the list comes first, and "config.json", by which a folder without "modules.json"
    # loads, comes after that.
    (temporary / LIST_FILE).replace(home / LIST_FILE)
    for name in reversed(new):
        if name != Path(LIST_FILE):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).replace(home / name)


def _regular_files(folder: Path) -> list[Path]:
    """Return the files of a folder and of those in it, sorted; links are left out."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def remove_empty(folder: Path) -> None:
    """Remove empty folders below a folder, and itself if it is empty. Those in hidden ones stay:
    git needs its own.
    """
    for root, _, _ in os.walk(folder, topdown=False):
        if not any(part.startswith(".") for part in Path(root).relative_to(folder).parts):
            with suppress(OSError):  # not empty
                Path(root).rmdir()


def unfinished(path: Path) -> Path:
    """Where a file or folder is written before it takes its place; a killed process may leave it
    there.
    """
    return path.with_name(f".{os.fsencode(path.name)[:MAX_NAME].decode('utf-8', 'ignore')}.part")


@contextmanager
def _unfinished(path: Path, folder: bool = False) -> Iterator[Path]:
    """Make the empty file or folder that is written for ``path``, and remove what is left of it at
    the end.

    One process at a time holds it, by a lock that ends with the process. What a killed one left is
    used again.
    """
    temporary = unfinished(path)
    kind = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
    while True:
        with suppress(FileNotFoundError):  # another process has just moved it to its place
            if folder:
                with suppress(FileExistsError):
                    temporary.mkdir()
            held = os.open(temporary, kind | os.O_NOFOLLOW, 0o666)  # the kernel applies the umask
            with suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_EX)
            if _is_same(temporary, held):
                break
            os.close(held)
    try:
        for left in temporary.iterdir() if folder else ():
            remove(left)
        yield temporary
    finally:
        with suppress(OSError):  # the error of writing counts
            if _is_same(temporary, held):
                remove(temporary)
        os.close(held)


def _is_same(path: Path, other: Path | int) -> bool:
    """Whether two are one file, links followed; false where there is none."""
    with suppress(OSError):
        return os.path.samefile(path, other)  # noqa: PTH121 (of a descriptor too)
    return False


def remove(place: Path) -> None:
    """Remove a file, a folder, or a link but not what it leads to; nothing happens where there is
    nothing.
    """
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


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
        reads: files that the command reads, which are never replaced; a folder stands for every
            file in it.
        ours: whether a file there was written by the same command and may be replaced without
            ``overwrite``.

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
    """Say why no file can be made in a folder, by making one; permissions alone do not tell. Empty
    if one can.
    """
    try:
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


def _reading(path: Path, reads: Iterable[Path]) -> str:
    """Say how a file is among those that the command reads, by any links; empty if it is not."""
    where = path.resolve()
    for read in reads:
        for file in (*read.rglob("*"), read):
            if _is_same(path, file) and file != path:
                return f"is the same file as {place(file)}, which this command reads"
            if where.is_relative_to(file.resolve()):
                return (
                    "is read by this command"
                    if path == read
                    else f"lies in {read}, which this command reads"
                )
    return ""
