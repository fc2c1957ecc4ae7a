"""Grids that are stopped, with sham cells, and the cores that cells share."""

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from grids import planned
from opera.core import environment
from opera.data.names import TableSource
from opera.experiments import grid
from opera.experiments.grid import Grid, Processes, train_grid


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_a_job_reads_the_tables_that_the_user_named(tmp_path, monkeypatch):
    tables = TableSource.of({"train": "p.csv"}, documents="d.csv", columns="id=key", encoding="cp1252")
    (cell,) = planned(tmp_path, data=[tables], also=["more.csv"], methods=["ft"], seeds=[0])
    calls = []
    monkeypatch.setattr(grid, "adapt", lambda **arguments: calls.append(arguments))
    monkeypatch.setattr(grid, "drop_checkpoints", lambda folder: None)
    grid.run_job(json.loads(json.dumps(cell.call(), default=asdict)))
    assert (calls[0]["data"], calls[0]["also"]) == (tables, ["more.csv"])
    assert cell.names == ("p+more.csv",)


@pytest.mark.parametrize(
    ("visible", "at_once", "expected"),
    [
        ("0,GPU-7", 3, {"0", "GPU-7"}),  # the third run waits for a free GPU
        ("0,GPU-7", 1, {"0,GPU-7"}),
        ("", 2, {""}),
    ],
)
def test_each_run_at_once_sees_a_gpu_of_its_own(visible, at_once, expected, tmp_path, monkeypatch):
    sham = (
        "import os, sys, time; sys.stdin.readline(); print(os.environ['CUDA_VISIBLE_DEVICES'], time.time(), flush=True)"
    )
    leave = "time.sleep(0.2); print(os.environ['CUDA_VISIBLE_DEVICES'], time.time(), flush=True)"
    monkeypatch.setattr(Processes, "command", (sys.executable, "-c", f"{sham}; {leave}"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    processes = Processes(at_once)
    logs = [tmp_path / f"{number}.log" for number in range(4)]
    with ThreadPoolExecutor(at_once) as pool:
        assert [*pool.map(lambda log: processes.run({}, log), logs)] == [None] * 4
    uses = [[line.rsplit(" ", 1) for line in log.read_text().splitlines()] for log in logs]
    assert {gpu for use in uses for gpu, _ in use} == expected
    spans = sorted((gpu, float(begin), float(end)) for (gpu, begin), (_, end) in uses)
    if len(expected) > 1:
        for (gpu, _, end), (other, begin, _) in pairwise(spans):
            assert gpu != other or end <= begin, "two runs at once on one GPU"


@pytest.mark.parametrize(("at_once", "threads"), [(1, None), (3, "2"), (9, "1")])
def test_cores_are_shared_unless_the_user_says_how_many(at_once, threads, monkeypatch):
    monkeypatch.setattr(grid, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Processes(at_once)._environment.get("OMP_NUM_THREADS") == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert Processes(at_once)._environment["OMP_NUM_THREADS"] == "5"
    monkeypatch.setitem(environment._chosen, "OMP_NUM_THREADS", "5")  # a container's quota, and not the user
    assert Processes(at_once)._environment["OMP_NUM_THREADS"] == (threads or "5")


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGINT, None), (signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)],
    ids=["Ctrl-C", "twice as clusters do", "Ctrl-C twice"],
)
def test_a_signal_lets_the_running_cell_save_and_a_second_ctrl_c_kills_it(first, second, sham_cells, tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    grid = Grid(tmp_path, planned(tmp_path, methods=["ft"], seeds=[0, 1]))
    folder, killed = grid.runs[0].folder, second == signal.SIGINT

    def send() -> None:
        wait_for(folder.with_name("started"))
        os.kill(os.getpid(), first)
        wait_for(folder.with_name("saving"))
        if second is not None:
            os.kill(os.getpid(), second)
        if not killed:
            folder.with_name("go-on").touch()

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        train_grid(grid)
    assert (grid.failed, grid.done) == ({}, set())
    (cell,) = sham_cells
    assert cell.wait() == (-signal.SIGKILL if killed else 0)
    assert folder.is_dir() is not killed
    assert signal.getsignal(signal.SIGTERM) == handler
