"""Read files; write files and folders completely or not at all, never over files that must stay.

Only regular files are opened, because opening a pipe could wait forever.
"""

from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from glob import escape
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import SafetensorError

from opera.core.arguments import kind_of_place
from opera.core.arrays import T
from opera.core.errors import RunFolderError, SettingError, StorageError, raise_first
from opera.core.terminal import shown_path

NOT_UTF8 = "not UTF-8; convert the file to UTF-8"


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to a regular file, to read bytes.

    Raises:
        OSError: if the file cannot be opened or is not a regular file; ``strerror`` says why.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, f"it is {kind_of_place(path)}", str(path))
    return path.open("rb")


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte-order mark.

    Raises:
        OSError: as :func:`open_file`.
        ValueError: if the file is not UTF-8, with the line.
    """
    with open_file(path) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is {NOT_UTF8}") from None


def parse_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: if the text is not JSON, with a message that can follow the name of a file.
    """
    try:
        value = json.loads(text)
        if "\\u" in text:  # an escape may be half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"contains half a character ({half!r}, a cut emoji); remove it") from None
    except json.JSONDecodeError as error:
        line = "" if error.lineno == 1 else f"line {error.lineno}, "
        raise ValueError(
            f"not JSON ({error.msg.removesuffix(' at')} at {line}column {error.colno})"
        ) from None
    return value


def read_json(path: Path) -> Any:
    """Parse a JSON file; a byte-order mark at its start is skipped.

    Raises:
        OSError: as :func:`open_file`.
        ValueError: as :func:`parse_json`, and if the file is not UTF-8.
    """
    return parse_json(read_text(path))


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a temporary file next to ``path``, then move it to ``path`` atomically.

    Raises:
        StorageError: if the file cannot be written, for example because the disk is full.
    """
    with writing(path.parent, final=path), _temporary(path) as temporary:
        write(temporary)
        flush(temporary)
        temporary.replace(path)


def replace_folder(folder: Path, write: Callable[[Path], T]) -> T:
    """Write a folder under a temporary name, then replace the old folder with it.

    A link to a folder stays a link.

    Args:
        folder: the folder.
        write: fills the empty folder that it gets. If it raises, ``folder`` does not change.

    Returns:
        The result of ``write``.

    Raises:
        StorageError: if the folder cannot be written, for example because the disk is full.
    """
    folder = folder.resolve()
    with writing(folder.parent, final=folder), _temporary(folder) as temporary:
        temporary.mkdir(parents=True)
        result = write(temporary)
        finish_folder(temporary)
        if folder.exists():
            exchange(temporary, folder)
        else:
            temporary.rename(folder)
    return result


AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Constants of Linux: paths relative to the current folder, and the exchange of two paths."""


def exchange(new: Path, old: Path) -> None:
    """Exchange two folders that have the same parent.

    Linux exchanges them in one step on most file systems, so that no moment lacks a folder.
    Elsewhere a killed process can leave both folders renamed until :func:`complete_exchange`.
    """
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    paths = AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old)
    if rename is None or rename(*paths, RENAME_EXCHANGE) != 0:
        old.rename(_saved(old))
        new.rename(old)
        complete_exchange(new, old)


def complete_exchange(new: Path, old: Path) -> None:
    """Put the saved folder of an interrupted exchange back, or under the name of the new folder."""
    if _saved(old).is_dir():
        _saved(old).rename(new if os.path.lexists(old) else old)


def _saved(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old.part")


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an ``.npz`` file, completely or not at all."""
    import numpy as np

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # to another name np.savez would add .npz
            np.savez(file, **arrays)

    replace_file(path, write)


def write_parquet(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write tables with the same columns, at least one, to a Parquet file, completely or not at
    all.
    """
    import pyarrow.parquet as pq

    def write(temporary: Path) -> None:
        parts = iter(tables)
        first = next(parts)
        # Arrow mistakes a relative path such as run:1/x for a network address
        with pq.ParquetWriter(temporary.absolute(), first.schema) as file:
            for table in chain([first], parts):
                file.write_table(table)

    replace_file(path, write)


def finish_folder(folder: Path) -> None:
    """Flush a folder's files to the disk, and give them the permissions of the folder.

    safetensors writes files that only their owner may read.
    """
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)
            flush(path)


def flush(path: Path) -> None:
    """Flush a file to the disk, so that a power cut after renaming cannot empty it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def unfinished(path: Path) -> Path:
    """Return the temporary name for writing a path. A killed process may leave it."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def leftovers(path: Path) -> list[Path]:
    """Return what killed processes left of unfinished writes to a path."""
    return list(path.parent.glob(f".{escape(path.name)}.*part"))


def clear_leftovers(path: Path) -> None:
    """Remove what killed processes left of unfinished writes to a path."""
    complete_exchange(unfinished(path), path)
    for leftover in leftovers(path):
        remove(leftover)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a temporary name next to ``path``; remove leftovers before and after."""
    clear_leftovers(path)
    try:
        yield unfinished(path)
    finally:
        with suppress(OSError):  # the error of writing matters more
            clear_leftovers(path)


def remove(path: Path) -> None:
    """Remove a file, a folder, or a link (but not its target), if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def foreign_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files in a folder whose paths match none of the names, and all links.

    Args:
        folder: a folder, which may be absent.
        names: patterns of paths relative to the folder; ``*`` matches folders too.
    """
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_symlink()
        or not (
            path.is_dir()
            or any(fnmatch(path.relative_to(folder).as_posix(), name) for name in names)
        )
    )


def check_output(
    path: Path,
    name: str,
    suffixes: Sequence[str],
    *,
    overwrite: bool,
    reads: Iterable[Path] = (),
    ours: Callable[[Path], bool] = lambda _: False,
) -> None:
    """Check, before any work, that an output file can be written without losing another file.

    Args:
        path: the file to write.
        name: the option's name, for the message.
        suffixes: the suffixes of the file formats.
        overwrite: whether an existing file may be replaced.
        reads: files and folders that the command reads; no file in them may be replaced.
        ours: whether the same command wrote the existing file, which then may be replaced without
            ``overwrite``.

    Raises:
        SettingError: with the rule and advice.
    """
    folder, kind = path.parent, kind_of_place(path)
    is_foreign = os.path.lexists(path) and kind in ("a file", None) and not ours(path)
    target = folder.resolve() / path.name  # a link there is replaced, and its target stays
    is_read = any(target.is_relative_to(read.resolve()) for read in reads)
    raise_first(
        SettingError,
        (
            path.suffix not in suffixes,
            f"must end in {' or '.join(suffixes)}; the suffix decides the format",
        ),
        (not folder.is_dir(), "its folder does not exist; create it first"),
        (not os.access(folder, os.W_OK), "its folder cannot be written to"),
        (kind not in ("a file", None), f"is {kind}; pass a file"),
        (is_foreign and is_read, "is read by this command; pass another file"),
        (
            is_foreign and not overwrite,
            "exists; pass --overwrite to replace it, or another file",
        ),
        subject=f"{name} {shown_path(path)}: ",
    )


def is_page(path: Path, generator: str) -> bool:
    """Whether a path is an HTML page that names ``generator`` at its start, as OPERA's pages do."""
    mark = f'<meta name="generator" content="{generator}">'
    return path.is_file() and mark.encode() in path.read_bytes()[:1000]


def free_path(path: Path) -> Path:
    """Return a path that nothing has yet: ``path`` itself, or ``path-2``, ``path-3`` and so on."""
    names = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(free for free in chain([path], names) if not os.path.lexists(free))


def check_folder(path: Path, name: str) -> None:
    """Check, before any work, that a folder can be made or written to.

    Raises:
        RunFolderError: if the path is not a folder, or cannot be written to.
    """
    subject = f"{name} {shown_path(path)}"
    kind = kind_of_place(path)
    if kind not in ("a folder", None):
        raise RunFolderError(f"{subject}: is {kind}; pass a folder")
    existing = next(parent for parent in (path, *path.parents, Path()) if os.path.lexists(parent))
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise RunFolderError(
            f"{subject}: {shown_path(existing)} is not a folder that can be written to"
        )


def check_reads_stay(folder: Path, reads: Iterable[Path], removed: Iterable[Path]) -> None:
    """Check that a command reads no file that it removes from its output folder.

    Args:
        folder: the output folder.
        reads: files and folders that the command reads.
        removed: files and folders in ``folder`` that the command is about to remove.

    Raises:
        RunFolderError: with the file that is read.
    """
    targets = [path.resolve() for path in removed]
    for read in reads:
        source = read.resolve()
        if source.is_relative_to(folder.resolve()) and any(
            target.is_relative_to(source) or source.is_relative_to(target) for target in targets
        ):
            raise RunFolderError(
                f"--out {shown_path(folder)}: --overwrite would delete {shown_path(read)}, which "
                "this command reads; pass another folder"
            )


ADVICE = {
    errno.ENOSPC: "free some space and run the command again",
    errno.EDQUOT: "free some of your quota and run the command again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) and run the command again",
}
"""Advice for errors about space."""


def storage_error(folder: Path, error: Exception, note: str = "") -> StorageError:
    """Describe an error of writing ``folder``; ``note`` says what the folder is."""
    path = getattr(error, "filename", None) or folder
    reason = str(getattr(error, "strerror", None) or error).lower()
    advice = ADVICE.get(getattr(error, "errno", None) or 0)
    return StorageError(
        f"{path}{note}: cannot be written: {reason}{f'; {advice}' if advice else ''}"
    )


@contextmanager
def writing(folder: Path, note: str = "", final: Path | None = None) -> Iterator[None]:
    """Turn an error of writing ``folder``, or a file in it, into one sentence.

    An error about a file elsewhere passes, because the block was reading that file. The sentence
    has the name ``final`` if it is given, since ``folder`` may be temporary.

    Raises:
        StorageError: with the path, the reason and advice.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        filename = getattr(error, "filename", None)
        if filename is not None and not Path(os.fsdecode(filename)).is_relative_to(folder):
            raise
        if filename is not None and final is not None:
            error.filename = None  # type: ignore[union-attr]
        raise storage_error(final or folder, error, note) from error
