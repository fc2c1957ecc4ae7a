"""The cache on disk: entries that are written whole, verified when they are opened, and made anew where damaged.

An entry is a folder, ``KIND/KEY/``. Its ``manifest.json`` holds the length and the XXH3 checksum of every other file.
Opening an entry reads all of it, once in a process: checksums run at the speed of memory, so that takes as long as
reading the file does, and whoever opens an entry is about to read it anyway. All of the cache can be deleted at any
time.

Entries of many files grow file by file: :mod:`opera.core.growing`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
import xxhash
from filelock import FileLock

from opera.core.errors import OperaError, SettingError
from opera.core.files import remove
from opera.core.paths import user_path
from opera.core.storage import EXHAUSTED, storage_error, writing
from opera.core.strict_json import read_json

log = logging.getLogger("opera")

MANIFEST = "manifest.json"
READ_BYTES = 2**20
KEPT_DAYS = 30
"""Days that an unfinished entry waits for somebody to go on with it."""
SETTLED_NS = 2 * 10**9
"""A file that was written this long ago gets another time stamp when it is written again."""
WHERE = " (in the cache, which OPERA_CACHE can move)"


def cache_folder() -> Path:
    """Return the folder of the cache: ``$OPERA_CACHE``, or the user's cache folder. All of it can be made again."""
    named = os.environ.get("OPERA_CACHE")
    return user_path(named, "OPERA_CACHE") if named else Path(platformdirs.user_cache_dir("opera"))


def cached(kind: str, key: str, write: Callable[[Path], Any]) -> Path:
    """Return the folder of an entry. Where it is absent or damaged, make it first.

    If another process is making the same entry, wait for that one.

    Args:
        kind: what the entry holds, such as ``vectors``.
        key: hex digest of everything that decides its contents.
        write: writes the entry's files into the empty folder that it is given. If it raises, nothing is kept.

    Raises:
        SettingError: if the folder of the cache cannot be used.
        StorageError: if the entry cannot be written, as where the disk is full.
    """
    return made_once(kind, key, lambda home, problem: _make(home, problem, write))


def made_once(kind: str, key: str, make: Callable[[Path, str], Any]) -> Path:
    """Return the folder of an entry; where it is absent or damaged, one process at a time makes it.

    Args:
        kind: what the entry holds.
        key: hex digest of everything that decides its contents.
        make: makes the folder that it is given; the second argument is what :func:`damage` said of it.
    """
    home = cache_folder() / kind / key
    if not is_whole(home):
        with held(home):
            problem = damage(home)
            if problem is not None:
                make(home, problem)
    return home


def entry(kind: str, key: str) -> Path | None:
    """Return the folder of an entry, ``None`` where there is none or it is damaged."""
    home = cache_folder() / kind / key
    return home if is_whole(home) else None


def is_whole(home: Path) -> bool:
    """Whether an entry is there and undamaged; removes what a killed process left of it."""
    if damage(home) is not None:
        return False
    if _lock_file(home).exists():
        _clear(home)
    return True


@contextmanager
def held(home: Path) -> Iterator[None]:
    """Hold the lock of an entry: wait for whoever makes it."""
    lock = FileLock(_lock_file(home))
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise _unusable(error) from None
    try:
        yield
    finally:
        _lock_file(home).unlink(missing_ok=True)  # while it is held: who waits for it notices
        lock.release()


def damage(home: Path) -> str | None:
    """Describe what is wrong with an entry: ``None`` where all is well, an empty string where there is none."""
    if not os.path.lexists(home):
        return ""
    if home.is_symlink() or not home.is_dir():
        return "it is not a folder"
    try:
        manifest = read_json(home / MANIFEST)
        expected = dict(manifest["files"]) if manifest["key"] == home.name else {}
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{MANIFEST} cannot be read"
    try:
        present = {path.name for path in home.iterdir()} - {MANIFEST}
        for name in sorted(present | expected.keys()):
            if name not in expected:
                return f"{name} does not belong to it"
            if name not in present:
                return f"{name} is missing"
            if facts_of(home / name) != expected[name]:
                return f"{name} has changed since it was written"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None if expected else f"{MANIFEST} is of another entry"


def _unusable(error: OSError) -> OperaError:
    folder = cache_folder()
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *EXHAUSTED):
        return storage_error(folder, error, WHERE)
    advice = "set OPERA_CACHE to a folder that can be written"
    return SettingError(
        f"OPERA_CACHE={folder}: cannot be used as the cache ({(error.strerror or str(error)).lower()}); {advice}"
    )


def _make(home: Path, problem: str, write: Callable[[Path], Any]) -> None:
    """Make an entry; the caller holds its lock."""
    if problem:
        log.info("note: the cached %s cannot be used (%s); making it anew", home, problem)
    folder = _unfinished(home)
    with writing(home.parent, WHERE):
        remove(home)
        remove(folder)
        sweep(home)
        folder.mkdir()
        try:
            write(folder)
            files = {path.name: facts_of(path) for path in sorted(folder.iterdir())}
            (folder / MANIFEST).write_text(
                json.dumps({"key": home.name, "files": files}, indent=1), encoding="utf-8"
            )
            folder.rename(home)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


_READ: dict[tuple[int, ...], dict[str, Any]] = {}
"""Facts of files that this process has read, by all that the file system says of them."""


def facts_of(path: Path) -> dict[str, Any]:
    """Length in bytes and XXH3 checksum of a file; it is read once while the file system says that it is the same."""
    if path.is_symlink() or not path.is_file():
        raise OSError(0, "is not a file", str(path))
    total, length = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        settled = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > SETTLED_NS
        if settled and identity in _READ:
            return _READ[identity]
        while block := file.read(READ_BYTES):
            total.update(block)
            length += len(block)
    facts = {"bytes": length, "xxh3": total.hexdigest()}
    if settled:
        _READ[identity] = facts
    return facts


def sweep(home: Path) -> None:
    """Remove what killed processes left of other entries."""
    left = {
        path.with_suffix("") for path in home.parent.glob(".*") if path.suffix in (".new", ".lock")
    }
    for other in sorted(home.with_name(path.name.removeprefix(".")) for path in left):
        if other != home:
            _clear(other)
    for path in home.parent.glob(".*.part"):
        other = home.with_name(path.stem.removeprefix("."))
        if other != home and time.time() - path.stat().st_mtime > KEPT_DAYS * 24 * 3600:
            _clear(other, grown=True)


def _clear(home: Path, grown: bool = False) -> None:
    """Remove what a killed process left of an entry, on demand what grew too; nothing, if one is making it now."""
    lock = FileLock(_lock_file(home), timeout=0)
    with suppress(OSError):  # also a Timeout: another process is making it, or it is another user's
        lock.acquire()
        try:
            remove(_unfinished(home))
            if grown:
                remove(growing(home))
            _lock_file(home).unlink(missing_ok=True)
        finally:
            lock.release()


def _lock_file(home: Path) -> Path:
    return home.with_name(f".{home.name}.lock")


def _unfinished(home: Path) -> Path:
    """Where an entry is written; only the process that holds its lock writes there."""
    return home.with_name(f".{home.name}.new")


def growing(home: Path) -> Path:
    """Where the files of an entry are gathered; they stay when their process ends."""
    return home.with_name(f".{home.name}.part")
