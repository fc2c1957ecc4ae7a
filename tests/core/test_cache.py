"""The cache: entries are made once, verified when they are opened, and made anew where damaged."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from opera.core.cache import MANIFEST, cached, damage
from opera.core.errors import SettingError, StorageError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path))


def write(folder: Path) -> None:
    (folder / "a").write_bytes(bytes(range(256)))
    (folder / "b").write_text("text")


def never(folder: Path) -> None:
    raise AssertionError("there is an entry already")


def _flip(home: Path) -> None:
    content = bytearray((home / "a").read_bytes())
    content[100] ^= 1
    stamp = (home / "a").stat()
    (home / "a").write_bytes(content)
    os.utime(home / "a", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # a change that no time of the file shows


def _edit_manifest(home: Path, **changes: object) -> None:
    manifest = json.loads((home / MANIFEST).read_text())
    (home / MANIFEST).write_text(json.dumps({**manifest, **changes}))


def _move_in(home: Path, key: str) -> None:
    other = cached(home.parent.name, key, write)
    shutil.rmtree(home)
    other.rename(home)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped bit": _flip,
    "shortened": lambda home: os.truncate(home / "a", 10),
    "missing file": lambda home: (home / "a").unlink(),
    "file too many": lambda home: (home / "c").write_bytes(b""),
    "link for a file": lambda home: (
        (home / "a").rename(home.parent / "x"),
        (home / "a").symlink_to(home.parent / "x"),
    ),
    "no manifest": lambda home: (home / MANIFEST).unlink(),
    "manifest is nested": lambda home: (home / MANIFEST).write_text("[" * 100_000),
    "files are a list": lambda home: _edit_manifest(home, files=[1]),
    "another entry": lambda home: _move_in(home, "0123"),
    "a file": lambda home: (shutil.rmtree(home), home.write_text("x")),
    "a dangling link": lambda home: (shutil.rmtree(home), home.symlink_to("nowhere")),
    "a link to an entry": lambda home: (home.rename(home.parent / "y"), home.symlink_to(home.parent / "y")),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_entry_is_made_anew_with_a_word(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    home = cached("vectors", "abc", write)
    assert cached("vectors", "abc", never) == home
    assert not caplog.messages
    DAMAGES[name](home)
    assert damage(home)
    assert cached("vectors", "abc", write) == home
    assert damage(home) is None
    assert (home / "a").read_bytes() == bytes(range(256))
    assert len(caplog.messages) == 1
    assert str(home) in caplog.messages[0]
    assert "making it anew" in caplog.messages[0]


def test_what_several_need_is_made_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    arrived, acquire = threading.Semaphore(0), FileLock.acquire

    def arrive(lock: FileLock) -> object:
        arrived.release()
        return acquire(lock)

    def make(folder: Path) -> None:
        made.append(folder)
        for _ in threads:
            arrived.acquire()  # none of them has found the entry, and the others wait for this one
        write(folder)

    monkeypatch.setattr(FileLock, "acquire", arrive)
    threads = [threading.Thread(target=cached, args=("vectors", "abc", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "vectors").iterdir()] == ["abc"]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    kind = tmp_path / "vectors"
    for name in (".abc.part", ".old.part", ".new.part"):
        (kind / name).mkdir(parents=True)
        (kind / name / "a").write_text("half")
    (kind / ".abc.lock").touch()
    os.utime(kind / ".old.part", (0, 0))
    home = cached("vectors", "abc", write)
    (kind / ".abc.lock").touch()  # killed between the last two steps
    assert cached("vectors", "abc", never) == home
    assert {path.name for path in kind.iterdir()} == {"abc", ".new.part"}


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777, 0o2775])
def test_who_may_write_to_the_cache_may_add_entries_of_each_kind(mode: int, tmp_path: Path) -> None:
    """A cache that several users share, as containers with users of their own do."""
    tmp_path.chmod(mode)
    kind = cached("vectors", "abc", write).parent
    assert stat.S_IMODE(kind.stat().st_mode) == mode
    kind.chmod(0o700)  # its owner's choice
    cached("vectors", "def", write)
    assert stat.S_IMODE(kind.stat().st_mode) == 0o700


def test_a_full_disk_is_one_sentence() -> None:
    def fill(folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder / "a"))

    with pytest.raises(StorageError, match="no space left on device; free some space"):
        cached("vectors", "abc", fill)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (
            "file",
            r"=.*/file: cannot be used as the cache \(.*/file/vectors: not a directory\); set OPERA_CACHE to a folder",
        ),
        (
            "file/x",
            r"=.*/file/x: cannot be used as the cache \(.*/file/x: not a directory\); set OPERA_CACHE to a folder",
        ),
        ("x" * 300, " .*: the name is too long"),
        ("loop/x", " .*: its links lead in a circle"),
        ("~nobody at all/x", " .*: there is no such user"),
    ],
)
def test_a_cache_that_cannot_be_used_is_named(
    place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("OPERA_CACHE", place if place.startswith("~") else str(tmp_path / place))
    with pytest.raises(SettingError, match=f"OPERA_CACHE{message}"):
        cached("vectors", "abc", write)
