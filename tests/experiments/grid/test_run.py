"""Cells that fail or die, and grids that are stopped, with sham cells; what is printed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from grids import planned
from opera.core import environment
from opera.experiments.grid import run
from opera.experiments.grid.run import Processes, Status, run_grid

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_one_that_dies_takes_no_other_cell_along(
    sham_cells: list[subprocess.Popen[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = planned(tmp_path, methods=["ft"], seeds=[0, 1, 3, 4])
    cells += planned(tmp_path, methods=["dp"], seeds=[0])
    (tmp_path / "x" / "dp").mkdir(parents=True)
    (tmp_path / "x" / "dp" / "steps10").write_text("a file where the cells' folder goes")
    cells += planned(tmp_path, methods=["rp"], seeds=[0])
    status = Status.scan(cells)
    run_grid(status, "model")
    killed, exited, failed, taken = status.failed.values()
    assert killed == "its process was killed, as happens when memory runs out"
    assert (exited, failed) == ("its process ended with exit status 5", "no luck")
    assert taken.startswith("FileExistsError")
    assert status.done == {cells[0].folder, cells[-1].folder}
    assert len(sham_cells) == 5, "a process each"
    assert all(process.returncode is not None for process in sham_cells)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == f"6 of 6 cells to run, 1 at a time; the log of the first is {cells[0].log}"
    assert lines[0].startswith(f"done: {cells[0].title}: nDCG@10 0.5000; 1 of 6 cells done, about ")
    assert lines[1:3] == [f"failed: {cells[1].title}: {killed}", f"  full log: {cells[1].log}"]
    assert lines[-1] == f"done: {cells[-1].title}: nDCG@10 0.5000; 2 of 6 cells done"


@pytest.mark.parametrize(("at_once", "threads"), [(1, None), (3, "2"), (9, "1")])
def test_cores_are_shared_unless_the_user_says_how_many(
    at_once: int, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Processes(at_once)._environment.get("OMP_NUM_THREADS") == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert Processes(at_once)._environment["OMP_NUM_THREADS"] == "5"
    monkeypatch.setitem(environment._chosen, "OMP_NUM_THREADS", "5")  # a container's quota, and not the user
    assert Processes(at_once)._environment["OMP_NUM_THREADS"] == (threads or "5")


@pytest.mark.parametrize("number", [signal.SIGINT, *SIGNALS])
def test_a_signal_lets_the_running_cells_save(
    number: signal.Signals, sham_cells: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    handlers = [signal.getsignal(other) for other in SIGNALS]
    status = Status.scan(planned(tmp_path, methods=["ft"], seeds=[5, 0]))
    folder = status.cells[0].folder

    def send() -> None:
        wait_for(folder.with_name("started"))
        os.kill(os.getpid(), number)
        wait_for(folder.with_name("saving"))
        if number != signal.SIGINT:  # such as timeout and clusters do; a second Ctrl-C does not wait
            os.kill(os.getpid(), number)
        folder.with_name("go-on").touch()

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_grid(status, "model")
    assert folder.is_dir(), "it had time to save"
    assert (status.failed, status.done) == ({}, set())
    assert len(sham_cells) == 1
    assert sham_cells[0].wait() == 0
    assert [signal.getsignal(other) for other in SIGNALS] == handlers


def test_a_second_ctrl_c_kills_them(sham_cells: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    status = Status.scan(planned(tmp_path, methods=["ft"], seeds=[5]))
    folder = status.cells[0].folder

    def send() -> None:
        wait_for(folder.with_name("started"))
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(folder.with_name("saving"))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_grid(status, "model")
    assert sham_cells[0].wait() == -signal.SIGKILL
    assert not folder.exists()
