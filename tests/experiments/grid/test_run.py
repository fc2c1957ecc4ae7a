"""Cells that fail, workers that die, and grids that are stopped, with sham workers."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from grids import planned
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.run import run_grid
from opera.experiments.grid.status import Status


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_one_that_dies_takes_no_other_cell_along(sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    cells = planned(tmp_path, methods=["ft"], seeds=range(5))
    cells += planned(tmp_path, methods=["dp"], seeds=[0])
    (tmp_path / "x" / "dp").mkdir(parents=True)
    (tmp_path / "x" / "dp" / "steps10").write_text("a file where the cells' folder goes")
    cells += planned(tmp_path, methods=["rp"], seeds=[0])
    status, told = Status.scan(cells), list[Cell]()
    run_grid(status, "model", lambda _, cell: told.append(cell))
    reasons = list(status.failed.values())
    assert reasons[:4] == [
        "its process was killed, as happens when memory runs out",
        "stopped",
        "its process ended with exit status 5",
        "no luck",
    ]
    assert reasons[4].startswith("FileExistsError")
    assert status.done == {cells[0].folder, cells[-1].folder}
    assert told == [cell for cell in cells for _ in ("started", "ended")]
    assert not status.running
    assert len(sham_workers) == 4, "started anew after each of the three that ended"
    assert all(process.returncode is not None for process in sham_workers)


def test_no_more_workers_than_cells(sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    status = Status.scan(planned(tmp_path, methods=["ft"], seeds=[0, 7]), jobs=50)
    run_grid(status, "model")
    assert len(status.done) == 2
    assert 1 <= len(sham_workers) <= 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_lets_them_save(
    number: signal.Signals, sham_workers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    handlers = [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)]
    status = Status.scan(planned(tmp_path, methods=["ft"], seeds=[5, 0]))
    folder = status.cells[0].folder

    def send() -> None:
        wait_for(folder.with_name("started"))
        os.kill(os.getpid(), number)
        wait_for(folder.with_name("saving"))
        if number != signal.SIGINT:  # such as timeout and clusters do; a second Ctrl-C does not wait
            os.kill(os.getpid(), number)
        folder.with_name("go-on").touch()

    threading.Thread(target=send).start()
    with pytest.raises(KeyboardInterrupt):
        run_grid(status, "model")
    assert folder.is_dir(), "it had time to save"
    assert (status.failed, status.done) == ({}, set())
    assert len(sham_workers) == 1
    assert sham_workers[0].wait() == 0
    assert [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)] == handlers


def test_a_second_ctrl_c_kills_them(sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    status = Status.scan(planned(tmp_path, methods=["ft"], seeds=[5]))
    folder = status.cells[0].folder

    def send() -> None:
        wait_for(folder.with_name("started"))
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(folder.with_name("saving"))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()
    with pytest.raises(KeyboardInterrupt):
        run_grid(status, "model")
    assert sham_workers[0].wait() == -signal.SIGKILL
    assert not folder.exists()


def test_nohup_holds(sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        status = Status.scan(planned(tmp_path, methods=["ft"], seeds=[0, 7]))
        run_grid(status, "model", lambda *_: os.kill(os.getpid(), signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert len(status.done) == 2


def test_the_progress_display_fails(sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    def on_change(status: Status, cell: Cell) -> None:
        wait_for(cell.folder.with_name("started"))
        raise BrokenPipeError

    status = Status.scan(planned(tmp_path, methods=["ft"], seeds=[6]))
    with pytest.raises(BrokenPipeError):
        run_grid(status, "model", on_change)
    assert sham_workers[0].wait() == 0, "it was asked to stop"
