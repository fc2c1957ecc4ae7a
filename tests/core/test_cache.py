"""The cache: an entry is made once, by one process, and appears complete."""

import multiprocessing
import os
import threading
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest.mock import Mock

import pytest

import opera
from opera.core import cache
from opera.core.cache import LOCK_FILE, cache_folder, cache_limit, cached, entry, locked, sole_use
from opera.core.errors import RunFolderError, SettingError
from opera.core.files import remove
from processes import start


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path))


def write(folder: Path, names: list[str]) -> None:
    (folder / "a").write_text("text")


def never(folder: Path, names: list[str]) -> None:
    raise AssertionError("there is an entry already")


def test_what_several_need_is_made_by_one(tmp_path):
    made = []

    def make(folder: Path, names: list[str]) -> None:
        made.append(folder)
        others = [threading.Thread(target=cached, args=("vectors", "abc", make)) for _ in range(3)]
        for other in others:
            other.start()  # they wait, or find the entry
        threads.extend(others)
        write(folder, names)

    threads = []
    cached("vectors", "abc", make)
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "vectors").iterdir()] == ["abc"]
    assert entry("vectors", "abc") == cached("vectors", "abc", never)
    assert entry("vectors", "other") is None


def test_what_killed_processes_left_is_removed(tmp_path):
    kind = tmp_path / "vectors"
    (kind / ".abc.part").mkdir(parents=True)
    (kind / ".abc.part" / "b").write_text("half")
    (kind / ".abc.lock").touch()
    home = cached("vectors", "abc", write)
    assert [path.name for path in home.iterdir()] == ["a"]
    assert [path.name for path in kind.iterdir()] == ["abc"]


def test_complete_files_of_a_killed_process_are_kept():
    asked = []

    def make(folder: Path, names: list[str]) -> None:
        asked.append(names)
        (folder / ".c.part").write_text("half")
        for name in names[:2]:
            (folder / name).write_text("" if name == "b" else "x")  # a power cut empties files
        if len(asked) == 1:
            raise KeyboardInterrupt
        (folder / ".c.part").rename(folder / "c")

    with pytest.raises(KeyboardInterrupt):
        cached("vectors", "abc", make, ["a", "b", "c"])
    assert entry("vectors", "abc") is None
    home = cached("vectors", "abc", make, ["a", "b", "c"])
    assert asked == [["a", "b", "c"], ["b", "c"]]
    assert {path.name for path in home.iterdir()} == {"a", "b", "c"}


def make_entries(barrier: Barrier, process: int) -> None:
    for number in range(40):
        barrier.wait()  # all processes rename at once
        cached("vectors", f"{number}-{process}", write)


def test_processes_that_write_entries_at_once_do_not_disturb_each_other(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3, timeout=300)
    processes = [context.Process(target=make_entries, args=(barrier, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list((tmp_path / "vectors").iterdir())) == 3 * 40


def key_of(letter: str) -> str:
    return letter * 32


def sized(kind: str, name: str, size: int, used: float) -> Path:
    """Write an entry that no process uses."""
    folder = cache_folder() / kind / name
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(b"x" * size)
    os.utime(folder, (used, used))
    return folder


def hold(key, holds, may_end):
    cached("vectors", key, never)
    holds.set()
    may_end.wait(60)


def test_the_least_recently_used_entries_leave_first_but_none_in_use(monkeypatch):
    monkeypatch.setenv("OPERA_CACHE_LIMIT", "1e-6")  # 1,000 bytes
    monkeypatch.setattr(cache, "_bytes_until_check", 0)
    older, old, new = (
        sized("data", key_of(letter), 400, used) for letter, used in (("a", 100), ("b", 200), ("c", 300))
    )
    in_use = sized("vectors", key_of("0"), 400, 50)
    context = multiprocessing.get_context("spawn")
    holds, may_end = context.Event(), context.Event()
    process = context.Process(target=hold, args=(in_use.name, holds, may_end))
    process.start()
    assert holds.wait(60)
    cached("tokens", key_of("d"), write)
    assert [folder.is_dir() for folder in (in_use, older, old, new)] == [True, False, False, True]
    assert [(entry.kind, entry.size) for entry in opera.cache()][-1] == ("tokens", 4)
    may_end.set()
    process.join()
    assert {entry.kind for entry in opera.cache(clear=True)} == {"tokens"}, "this process uses it"


def test_what_a_killed_process_left_is_counted_and_cleared_but_not_what_another_writes(tmp_path):
    left = sized("data", f".{key_of('e')}.part", 7, 100)
    (left / "spilled").mkdir()
    (left / "spilled" / "more").write_bytes(b"xyz")
    os.utime(left, (100, 100))
    written, deleted = (
        sized("data", f".{key_of(letter)}{suffix}", size, used)
        for letter, suffix, size, used in (("f", ".part", 5, 200), ("a", ".deleted", 6, 300))
    )
    sized("data", key_of("a"), 0, 400)
    assert [entry.size for entry in opera.cache()] == [10, 5, 6, 0]
    with locked(written.with_name(f".{key_of('f')}.lock")):
        assert [entry.folder for entry in opera.cache(clear=True)] == [written]
    assert not left.exists()
    assert not deleted.exists()
    assert opera.cache(clear=True) == []
    assert not [*(tmp_path / "data").iterdir()]


def test_other_folders_links_and_unreadable_entries_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("OPERA_CACHE_LIMIT", "0")
    monkeypatch.setattr(cache, "_bytes_until_check", 0)
    users = [
        sized(kind, name, 9, 1)
        for kind, name in (("Documents", "thesis"), ("data", "mine"), ("Documents", key_of("a")))
    ]
    link = tmp_path / "data" / key_of("b")
    link.symlink_to(users[0])
    entry = sized("vectors", key_of("c"), 9, 1)
    monkeypatch.setattr(cache, "size_of", Mock(side_effect=PermissionError))
    opera.cache(clear=True)
    assert all(path.is_dir() for path in (*users, link, entry))
    monkeypatch.undo()
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path))
    opera.cache(clear=True)
    assert all(path.is_dir() for path in (*users, link))
    assert not entry.exists()


def test_an_entry_whose_folder_was_deleted_is_written_again():
    remove(cached("tokens", "e", write))
    assert (cached("tokens", "e", write) / "a").is_file()
    assert cached("tokens", "e", never).is_dir()


def test_the_limit_is_a_number_of_gigabytes(monkeypatch):
    monkeypatch.setenv("OPERA_CACHE_LIMIT", "20GB")
    with pytest.raises(SettingError, match="OPERA_CACHE_LIMIT: must be a number of gigabytes, such as 20, got '20GB'"):
        cache_limit()
    monkeypatch.setenv("OPERA_CACHE_LIMIT", "inf")
    with pytest.raises(SettingError):
        cache_limit()


HOLD = """
import signal, sys
from pathlib import Path
from opera.core.cache import sole_use
with sole_use(Path(sys.argv[1]), "trains into this folder"):
    (Path(sys.argv[1]) / "held").touch()
    signal.pause()
"""


def test_a_held_folder_is_refused_until_its_process_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "PATIENCE", 0.0)
    folder, script = tmp_path / "run", tmp_path / "hold.py"
    folder.mkdir()
    message = f"process {os.getpid()} on .* trains into this folder; wait until"
    refused = pytest.raises(RunFolderError, match=message)
    with sole_use(folder, "trains into this folder"), refused, sole_use(folder, "x"):
        pass
    assert not list(folder.iterdir())
    script.write_text(HOLD)
    child = start([str(script), str(folder)], tmp_path / "log")
    child.wait_until((folder / "held").exists)
    with pytest.raises(RunFolderError, match="trains into this folder"), sole_use(folder, "x"):
        pass
    child.send_signal(9)
    child.wait()
    assert (folder / LOCK_FILE).exists()
    with sole_use(folder, "x"):
        pass
    assert not (folder / LOCK_FILE).exists()
