"""Locks, so that only one process writes a file or folder; and the cache on disk.

Users may delete the cache at any time.

An entry is a folder, ``KIND/KEY/``. The process that holds ``KIND/.KEY.lock`` writes it as
``KIND/.KEY.part`` and renames it when it is complete. The files of a large entry get their names
only when they are complete. So the next process continues from the files that a killed process
left.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
from filelock import FileLock, Timeout

from opera.core.arguments import flag, user_path
from opera.core.errors import RunFolderError, SettingError
from opera.core.files import finish_folder, remove, writing
from opera.core.terminal import counted, log, shown

LOCK_FILE, PART, DELETED = ".running", ".part", ".deleted"
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


WHERE = " (in the cache, which OPERA_CACHE can move)"


def cache_folder() -> Path:
    """Return the folder of the cache: ``$OPERA_CACHE``, or the user's cache folder."""
    variable = os.environ.get("OPERA_CACHE")
    return (
        user_path(variable, "OPERA_CACHE")
        if variable
        else Path(platformdirs.user_cache_dir("opera"))
    )


def entry(kind: str, key: str) -> Path | None:
    """Return the folder of an entry, or ``None`` if there is none."""
    folder = cache_folder() / kind / key
    return folder if folder.is_dir() else None


def cached(
    kind: str, key: str, write: Callable[[Path, list[str]], Any], names: Sequence[str] = ()
) -> Path:
    """Return the folder of an entry. If it is absent, one process writes it and the others wait.

    If the process is killed, or ``write`` raises, complete files of ``names`` stay, and the next
    call continues from there.

    Args:
        kind: the kind of contents, such as ``vectors``.
        key: hex digest of everything that decides the contents.
        write: gets a folder and the missing files of ``names``. A file must get its name only when
            it is complete.
        names: the entry's files, if they are known in advance.

    Raises:
        SettingError: as :func:`cache_limit`.
        StorageError: if the cache cannot be written, for example because the disk is full.
    """
    assert kind in KINDS, "cache_entries must find the new entry"
    cache_limit()  # a wrong limit must not end a run late
    folder = cache_folder() / kind / key
    is_new = False
    with writing(Path(folder.anchor), WHERE):
        exists = _hold(folder)
    while not exists:
        with writing(Path(folder.anchor), WHERE):
            folder.parent.mkdir(parents=True, exist_ok=True)
        lock = locked(folder.with_name(f".{key}.lock"))
        with writing(folder.parent, WHERE), lock:  # wait for the process that writes it
            if not folder.is_dir():
                _write_entry(folder, names, write)
                is_new = True
            exists = _hold(folder)
    if is_new:
        _make_room(size_of(folder))
    return folder


def _write_entry(
    folder: Path, names: Sequence[str], write: Callable[[Path, list[str]], Any]
) -> None:
    """Write an entry. The caller holds its lock."""
    temporary = folder.with_name(f".{folder.name}{PART}")
    temporary.mkdir(exist_ok=True)
    complete = {
        path.name
        for path in temporary.iterdir()
        if path.name in names and path.stat().st_size  # a power cut leaves empty files
    }
    if complete:
        note = "note: an interrupted run left %d of %d files, which are used: %s"
        log.info(note, len(complete), len(names), folder)
    for path in temporary.iterdir():
        if path.name not in complete:
            remove(path)
    missing = [name for name in names if name not in complete]
    try:
        if missing or not names:
            write(temporary, missing)
        finish_folder(temporary)
    except BaseException:
        if not any((temporary / name).exists() for name in names):
            remove(temporary)
        raise
    temporary.rename(folder)


GIGABYTE = 10**9
LIMIT = 20.0
"""The size of the cache in gigabytes, unless ``OPERA_CACHE_LIMIT`` sets another."""
CHECKED_BYTES = 2 * 10**8
"""A process looks at the size of the cache at its first new entry, then after so many bytes."""
MOST_HELD = 200
"""How many entries a process holds, the last that it used, since each needs an open file."""
KINDS = ("data", "passages", "rankings", "reranked", "tokens", "vectors")
ENTRY = re.compile(rf"[0-9a-f]{{32,}}|\.[0-9a-f]{{32,}}({PART}|{DELETED})")
"""Names of folders that OPERA may delete: entries, and what a killed process left of them."""
_held: dict[Path, int] = {}
_bytes_until_check = 0


class CacheEntry(NamedTuple):
    """A folder of the cache.

    Attributes:
        folder: the folder.
        kind: the kind of contents, such as ``vectors``.
        size: bytes.
        used: the time of the last use, in seconds since 1970.
    """

    folder: Path
    kind: str
    size: int
    used: float


def cache_limit() -> float:
    """Return the largest size of the cache in bytes.

    Raises:
        SettingError: if ``OPERA_CACHE_LIMIT`` is not a number of gigabytes.
    """
    text = os.environ.get("OPERA_CACHE_LIMIT")
    try:
        limit = LIMIT if text is None else float(text)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise SettingError(
            f"OPERA_CACHE_LIMIT: must be a number of gigabytes, such as 20, got {shown(text)}"
        )
    return limit * GIGABYTE


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder and below."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())


def cache_entries() -> list[CacheEntry]:
    """Return the entries of the cache, least recently used first, with those that a killed process
    left unfinished.

    The list leaves out a user's other folders, links, and folders that OPERA cannot read.
    """
    entries = []
    for kind in KINDS:
        for folder in (cache_folder() / kind).glob("*"):
            if not ENTRY.fullmatch(folder.name) or folder.is_symlink():
                continue
            with suppress(OSError):  # of another user, or another process deletes it
                used = folder.stat().st_mtime
                entries.append(CacheEntry(folder, kind, size_of(folder), used))
    return sorted(entries, key=lambda entry: entry.used)


def shrink_cache(limit: float) -> list[CacheEntry]:
    """Delete the least recently used entries until the cache has at most ``limit`` bytes.

    Entries that a process uses stay.

    Returns:
        The deleted entries.
    """
    entries, deleted = cache_entries(), []
    excess = sum(entry.size for entry in entries) - limit
    for entry in entries:
        if excess > 0 and _delete(entry.folder):
            deleted.append(entry)
            excess -= entry.size
    return deleted


def _delete(folder: Path) -> bool:
    """Delete an entry, unless a process uses or writes it; return whether it is gone."""
    if folder in _held:
        return False
    try:
        if folder.suffix == DELETED:
            remove(folder)
        elif folder.suffix == PART:
            key = folder.stem.removeprefix(".")
            with suppress(Timeout), locked(folder.with_name(f".{key}.lock"), 0):
                remove(folder)
        else:
            _delete_entry(folder)
    except OSError:  # not ours to delete
        return False
    return not folder.exists()


def _delete_entry(folder: Path) -> None:
    """Rename an entry and delete it, unless a process holds it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises an error if it is in use
        if os.path.samestat(os.fstat(handle), folder.stat()):  # not a newer entry
            away = folder.with_name(f".{folder.name}{DELETED}")
            remove(away)
            folder.rename(away)
            remove(away)
    finally:
        os.close(handle)


def _hold(folder: Path) -> bool:
    """Note the use of an entry, and protect it from deletion while this process runs.

    Returns:
        Whether the entry exists.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(folder)
        exists = folder.is_dir() and os.path.samestat(os.fstat(handle), folder.stat())
    except BlockingIOError:  # another process deletes it
        exists = False
    except OSError:  # a cache may be read-only, or have no locks
        exists = folder.is_dir()
    if not exists:
        os.close(handle)
        return False
    if (earlier := _held.pop(folder, None)) is not None:
        os.close(earlier)
    _held[folder] = handle
    while len(_held) > MOST_HELD:
        os.close(_held.pop(next(iter(_held))))
    return True


def _make_room(size: int) -> None:
    """Shrink the cache if it may exceed its limit by a new entry of ``size`` bytes."""
    global _bytes_until_check
    _bytes_until_check -= size
    if _bytes_until_check > 0:
        return
    _bytes_until_check = CHECKED_BYTES
    if deleted := shrink_cache(cache_limit()):
        log.info(
            "note: the cache had more than %g GB, so OPERA deleted %s, the least recently used "
            "first; OPERA_CACHE_LIMIT sets the limit",
            *(cache_limit() / GIGABYTE, counted(len(deleted), "entry")),
        )


def cache(clear: bool = False) -> list[CacheEntry]:
    """Return the entries of the cache on disk, least recently used first.

    Args:
        clear: delete the entries first. Entries that a process uses stay.

    Raises:
        SettingError: if ``clear`` is not a truth value.

    Examples:
        >>> data = opera.load_data("example:faq")
        >>> "data" in {entry.kind for entry in opera.cache()}
        True
    """
    if flag(clear, "clear"):
        for entry in cache_entries():
            _delete(entry.folder)
    return cache_entries()
