"""Workers of a grid that die, are stopped and share what they make; sham ones, which load nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from grids import finished_run, planned
from opera.core import files
from opera.core.errors import SettingError
from opera.core.files import write_once
from opera.experiments.grid import run as running
from opera.experiments.grid.compare import check_baseline, compared
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.run import Worker, WorkerLostError, run_grid
from opera.experiments.grid.status import Status
from processes import DEADLINE

SHAM = """
import json, os, signal, sys, time
from pathlib import Path

def say(**news):
    print(json.dumps(news), flush=True)

def save(number, frame):
    place = Path(job["out"])
    (place.parents[3] / "saving").touch()
    while not (place.parents[3] / "signalled").exists():
        time.sleep(0.01)
    place.mkdir()
    say(stopped=True)
    sys.exit()

for line in iter(sys.stdin.readline, ""):
    job = json.loads(line)
    what = job["values"]["seed"]
    if what == 5: signal.signal(signal.SIGTERM, save)
    say(step=1)
    if what == 1: os.kill(os.getpid(), signal.SIGKILL)
    if what == 2: say(stopped=True); sys.exit()
    if what == 3: sys.exit(5)
    if what == 4: say(failed="no luck"); continue
    while what == 5: signal.pause()
    say(done=True)
"""


@pytest.fixture
def sham_workers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Workers that load nothing and end as the seed says; those that were started."""
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(popen([sys.executable, "-c", SHAM], **options))
        return started[-1]

    monkeypatch.setattr(running.subprocess, "Popen", start)
    return started


class TestWorkers:
    def test_one_that_dies_takes_no_other_cell_along(
        self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path
    ) -> None:
        cells = planned(tmp_path, methods=["ft"], seeds=range(5))
        cells += planned(tmp_path, methods=["dp"], seeds=[0])
        (tmp_path / "x" / "dp").mkdir(parents=True)
        (tmp_path / "x" / "dp" / "steps10").write_text("a file where the cells' folder goes")
        cells += planned(tmp_path, methods=["rp"], seeds=[0])
        status, told = Status.of(cells), list[Cell | None]()
        run_grid(status, "model", lambda _, cell: told.append(cell))
        reasons = list(status.failed.values())
        assert reasons[:4] == [
            "its process was killed, as happens when memory runs out",
            "stopped",
            "its process ended with exit status 5",
            "no luck",
        ]
        assert reasons[4].startswith("FileExistsError")
        assert status.done == {cells[0].place, cells[-1].place}
        assert [cell for cell in told if cell is not None] == cells
        assert not status.running
        assert len(sham_workers) == 4, "started anew after each of the three that ended"
        assert all(process.returncode is not None for process in sham_workers)

    def test_no_more_workers_than_cells(self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
        status = Status.of(planned(tmp_path, methods=["ft"], seeds=[0, 6]), jobs=50)
        run_grid(status, "model")
        assert len(status.done) == 2
        assert 1 <= len(sham_workers) <= 2

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_a_signal_lets_them_save(
        self, number: signal.Signals, sham_workers: list[subprocess.Popen[str]], tmp_path: Path
    ) -> None:
        handlers = [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)]
        status = Status.of(planned(tmp_path, methods=["ft"], seeds=[5, 0]))

        def send() -> None:
            os.kill(os.getpid(), number)
            if number != signal.SIGINT:  # such as timeout and clusters do; a second Ctrl-C does not wait
                while not (tmp_path / "saving").exists():
                    time.sleep(0.01)
                os.kill(os.getpid(), number)
            (tmp_path / "signalled").touch()

        def changed(status: Status, cell: Cell | None) -> None:
            if any(one.step for one in status.running.values()) and not asked:
                asked.append(threading.Thread(target=send))
                asked[0].start()

        asked: list[threading.Thread] = []
        with pytest.raises(KeyboardInterrupt):
            run_grid(status, "model", changed)
        assert status.cells[0].place.is_dir(), "it had time to save"
        assert (status.failed, status.done) == ({}, set())
        assert len(sham_workers) == 1
        assert sham_workers[0].wait() == 0
        assert [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)] == handlers

    def test_nohup_holds(self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            status = Status.of(planned(tmp_path, methods=["ft"], seeds=[0, 6]))
            run_grid(status, "model", lambda *_: os.kill(os.getpid(), signal.SIGHUP))
        finally:
            signal.signal(signal.SIGHUP, before)
        assert len(status.done) == 2

    def test_what_shows_the_status_fails(self, sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
        def changed(status: Status, cell: Cell | None) -> None:
            if any(one.step for one in status.running.values()):
                raise BrokenPipeError

        (tmp_path / "signalled").touch()
        status = Status.of(planned(tmp_path, methods=["ft"], seeds=[5]))
        with pytest.raises(BrokenPipeError):
            run_grid(status, "model", changed)
        assert sham_workers[0].wait() == 0, "it was asked to stop"

    def test_none_is_started_after_it_was_asked_to_stop(self, sham_workers: list[subprocess.Popen[str]]) -> None:
        worker = Worker(None)
        worker.ask_to_stop()
        with pytest.raises(WorkerLostError):
            next(worker.do({}))
        assert sham_workers == []

    def test_cores_are_shared(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked: list[int | None] = []
        monkeypatch.setattr(running.os, "cpu_count", lambda: 8)
        monkeypatch.setattr(running, "Worker", asked.append)
        cells = planned(tmp_path, seeds=range(2))
        for jobs in (1, 3, 9):
            running._workers(Status.of(cells, jobs))
        assert asked == [None, 2, 2, 2, 2, 2, 2, 2]


def test_what_several_need_is_made_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of four threads writes when all have seen that the file is not there and ask for the lock."""
    made, path, everyone = [], tmp_path / "vectors", threading.Semaphore(0)
    flock = files.fcntl.flock

    def counted(file: Any, operation: int) -> None:
        everyone.release()
        flock(file, operation)

    def write(temporary: Path) -> None:
        made.append(temporary)
        temporary.write_text("x")

    def write_last(temporary: Path) -> None:
        assert all(everyone.acquire(timeout=DEADLINE) for _ in range(4))
        write(temporary)

    monkeypatch.setattr(files.fcntl, "flock", counted)
    threads = [threading.Thread(target=write_once, args=(path, write)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [place.name for place in tmp_path.iterdir()] == ["vectors"]

    def fail(temporary: Path) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_once(tmp_path / "other", fail)
    write_once(tmp_path / "other", write)
    assert len(made) == 2


def test_a_baseline_goes_by_the_name_that_the_user_gave_it(tmp_path: Path) -> None:
    cells = planned(tmp_path, methods=["sp:k=0.25", "dp", "ft"], seeds=[0])
    for cell in cells:
        finished_run(cell)
    assert compared(Status.of(cells), tmp_path, "sp:k=0.25").baseline == "sp"
    assert compared(Status.of(cells), tmp_path, None).baseline == "ft"
    (cells[0].place / "run.json").unlink()
    assert compared(Status.of(cells), tmp_path, "sp:k=0.25").baseline == "ft", "its cell failed"
    with pytest.raises(SettingError, match=r"--baseline sp: must be one of the methods: sp:k=0\.25, dp"):
        check_baseline("sp", ["sp:k=0.25", "dp"])
