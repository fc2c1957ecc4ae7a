"""The cache on disk: entries that are written whole, verified when they are opened, and made anew
where damaged.

An entry is a folder, ``KIND/KEY/``. Its ``manifest.json`` holds the length and the XXH3 checksum of
every other file. Opening an entry reads all of it, once in a process: checksums run at the speed of
memory, so that takes as long as reading the file does, and whoever opens an entry is about to read
it anyway. All of the cache can be deleted at any time.

An entry is written in ``.KEY.part``, by the process that holds ``.KEY.lock``. One whose files are
known before (:func:`grown`) is written file by file: what a killed process had finished is kept,
and the next one goes on from there.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
import xxhash
from filelock import FileLock

from opera.core.errors import OperaError, SettingError
from opera.core.files import remove, unfinished
from opera.core.paths import user_path
from opera.core.reading import read_json
from opera.core.storage import EXHAUSTED, storage_error, writing

log = logging.getLogger("opera")

MANIFEST = "manifest.json"
SEAL = ".done.json"
"""Ends the name of what says that a file of an unfinished entry is whole."""
READ_BYTES = 2**20
KEPT_SECONDS = 30 * 24 * 3600
"""How long an unfinished entry waits for somebody to go on with it."""
SETTLED_NS = 2 * 10**9
"""A file that was written this long ago gets another time stamp when it is written again."""
WHERE = " (in the cache, which OPERA_CACHE can move)"


def cache_folder() -> Path:
    """Return the folder of the cache: ``$OPERA_CACHE``, or the user's cache folder. All of it can
    be made again.
    """
    named = os.environ.get("OPERA_CACHE")
    return user_path(named, "OPERA_CACHE") if named else Path(platformdirs.user_cache_dir("opera"))


def cached(kind: str, key: str, write: Callable[[Path], Any]) -> Path:
    """Return the folder of an entry. Where it is absent or damaged, one process at a time makes it;
    others wait.

    Args:
        kind: what the entry holds, such as ``vectors``.
        key: hex digest of everything that decides its contents.
        write: writes the entry's files into the empty folder that it is given. If it raises,
            nothing is kept.

    Raises:
        SettingError: if the folder of the cache cannot be used.
        StorageError: if the entry cannot be written, as where the disk is full.
    """
    return grown(kind, key, [], lambda folder, _: write(folder), {})


def grown(
    kind: str,
    key: str,
    names: Sequence[str],
    write: Callable[[Path, list[str]], Any],
    about: Mapping[str, Any],
) -> Path:
    """Return the folder of an entry as :func:`cached` does, where its files are known before.

    What is finished when the process is killed, or ``write`` raises, is kept, and the next call
    goes on from there.

    Args:
        kind: what the entry holds, such as ``vectors``.
        key: hex digest of everything that decides its contents.
        names: its files.
        write: writes the files that it is told into the folder that it is given, and seals each
            (:func:`seal`). They appear under their names only.
        about: what a person who looks at the manifest wants to know; JSON.
    """
    home = cache_folder() / kind / key
    if damage(home) is not None or _lock(home).exists():  # of a killed process, or of one at work
        with _held(home):
            problem = damage(home)
            if problem:
                log.info("note: the cached %s cannot be used (%s); making it anew", home, problem)
            if problem is not None:
                with writing(home.parent, WHERE):
                    remove(home)
                    _make(home, names, write, about)
    return home


def entry(kind: str, key: str) -> Path | None:
    """Return the folder of an entry, ``None`` where there is none or it is damaged."""
    home = cache_folder() / kind / key
    return home if damage(home) is None else None


def seal(path: Path) -> None:
    """Say that a file of a growing entry is whole; its writer calls this."""
    _seal(path).write_text(json.dumps(_facts(path)), encoding="utf-8")


def damage(home: Path) -> str | None:
    """Describe what is wrong with an entry: ``None`` where all is well, an empty string where there
    is none.
    """
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


def _make(
    home: Path,
    names: Sequence[str],
    write: Callable[[Path, list[str]], Any],
    about: Mapping[str, Any],
) -> None:
    """Make an entry; the caller holds its lock."""
    for left in home.parent.glob(".*.part"):
        if time.time() - left.lstat().st_mtime > KEPT_SECONDS:
            remove(left)
    folder = unfinished(home)
    if folder.is_symlink() or not folder.is_dir():
        remove(folder)
        folder.mkdir()
    done = {name for name in names if _is_sealed(folder / name)}
    if done:
        words = "note: %d of %d files are there from a run that was broken off: %s"
        log.info(words, len(done), len(names), home)
    for path in folder.iterdir():
        if path.name.removesuffix(SEAL) not in done:
            remove(path)
    missing = [name for name in names if name not in done]
    try:
        if missing or not names:
            write(folder, missing)
        files = {name: read_json(_seal(folder / name)) for name in names} or {
            path.name: _facts(path) for path in sorted(folder.iterdir())
        }
        manifest = json.dumps({"key": home.name, **about, "files": files}, indent=1)
        (folder / MANIFEST).write_text(manifest, encoding="utf-8")
    except BaseException:
        if not any(folder.glob(f"*{SEAL}")):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    for name in names:
        _seal(folder / name).unlink()
    folder.rename(home)


@contextmanager
def _held(home: Path) -> Iterator[None]:
    """Hold the lock of an entry: wait for whoever makes it."""
    path = _lock(home)
    lock = FileLock(path)
    try:
        _make_kind(home.parent)
        lock.acquire()
    except OSError as error:
        raise _unusable(error) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: who waits for it makes a new one
        lock.release()


def _make_kind(folder: Path) -> None:
    """Make the folder of a kind of entries; who may write to the cache may write there."""
    if not folder.is_dir():
        if not folder.parent.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            folder.mkdir()
            folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode))


def _unusable(error: OSError) -> OperaError:
    folder = cache_folder()
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *EXHAUSTED):
        return storage_error(folder, error, WHERE)
    reason = (error.strerror or str(error)).lower()
    return SettingError(
        f"OPERA_CACHE={folder}: cannot be used as the cache ({error.filename or folder}: {reason})"
        "; set OPERA_CACHE to a folder that can be written"
    )


_READ: dict[tuple[int, ...], dict[str, Any]] = {}
"""Facts of files that this process has read, by all that the file system says of them."""


def _facts(path: Path) -> dict[str, Any]:
    """Length in bytes and XXH3 checksum of a file; it is read once while the file system says that
    it is the same.
    """
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


def _lock(home: Path) -> Path:
    return home.with_name(f".{home.name}.lock")


def _seal(path: Path) -> Path:
    return path.with_name(f"{path.name}{SEAL}")


def _is_sealed(path: Path) -> bool:
    """Whether a file of an unfinished entry is whole: its seal says what it holds."""
    with suppress(OSError, ValueError):
        return bool(read_json(_seal(path)) == _facts(path))
    return False
