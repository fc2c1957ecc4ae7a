"""The cache on disk: entries that are written whole, verified when they are opened, and made anew where damaged.

An entry is a folder, ``KIND/KEY/``. Its ``manifest.json`` holds the length and the XXH3 checksum of every other file.
Opening an entry reads all of it once: checksums run at the speed of memory, so that takes as long as reading the file
does, and whoever opens an entry is about to read it anyway. All of the cache can be deleted at any time.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
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
    home = cache_folder() / kind / key
    if damage(home) is None:
        if _lock_file(home).exists():
            _clear(home)
        return home
    lock = FileLock(_lock_file(home))
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise _unusable(error) from None
    try:
        problem = damage(home)
        if problem is not None:
            _make(home, problem, write)
    finally:
        _lock_file(home).unlink(missing_ok=True)  # while it is held: who waits for it notices
        lock.release()
    return home


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
            if _facts(home / name) != expected[name]:
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
        _sweep(home)
        folder.mkdir()
        try:
            write(folder)
            files = {path.name: _facts(path) for path in sorted(folder.iterdir())}
            (folder / MANIFEST).write_text(json.dumps({"key": home.name, "files": files}, indent=1), encoding="utf-8")
            folder.rename(home)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _facts(path: Path) -> dict[str, Any]:
    """Length in bytes and XXH3 checksum of a file."""
    if path.is_symlink() or not path.is_file():
        raise OSError(0, "is not a file", str(path))
    total, length = xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(READ_BYTES):
            total.update(block)
            length += len(block)
    return {"bytes": length, "xxh3": total.hexdigest()}


def _sweep(home: Path) -> None:
    """Remove what killed processes left of other entries."""
    left = {path.with_suffix("") for path in home.parent.glob(".*") if path.suffix in (".new", ".lock")}
    for other in sorted(home.with_name(path.name.removeprefix(".")) for path in left):
        if other != home:
            _clear(other)


def _clear(home: Path) -> None:
    """Remove what a killed process left of an entry; nothing, if one is making it now."""
    lock = FileLock(_lock_file(home), timeout=0)
    with suppress(OSError):  # also a Timeout: another process is making it, or it is another user's
        lock.acquire()
        try:
            remove(_unfinished(home))
            _lock_file(home).unlink(missing_ok=True)
        finally:
            lock.release()


def _lock_file(home: Path) -> Path:
    return home.with_name(f".{home.name}.lock")


def _unfinished(home: Path) -> Path:
    """Where an entry is written; only the process that holds its lock writes there."""
    return home.with_name(f".{home.name}.new")
