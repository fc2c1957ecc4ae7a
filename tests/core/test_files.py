"""Files that several processes need are written by one."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from opera.core.files import write_once


def test_what_several_need_is_written_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, path = [], tmp_path / "embeddings"
    arrived, flock = threading.Semaphore(0), fcntl.flock

    def arrive(*arguments: object) -> None:
        arrived.release()
        flock(*arguments)  # type: ignore[arg-type]

    def write(temporary: Path) -> None:
        written.append(temporary)
        for _ in threads:
            arrived.acquire()  # none of them has found the file, and the others wait for this one
        temporary.write_text("x")

    monkeypatch.setattr("opera.core.files.fcntl.flock", arrive)
    threads = [threading.Thread(target=write_once, args=(path, write)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["embeddings"]


def test_one_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(temporary: Path) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_once(tmp_path / "embeddings", fail)
    write_once(tmp_path / "embeddings", lambda temporary: temporary.write_text("x"))
    assert (tmp_path / "embeddings").read_text() == "x"
