"""The parent's side of a worker."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from grids import planned
from opera.experiments.grid import worker_process
from opera.experiments.grid.run import Scheduler
from opera.experiments.grid.status import Status
from opera.experiments.grid.worker_process import WorkerLostError, WorkerProcess


def job(seed: int, folder: Path) -> dict[str, Any]:
    return {"values": {"seed": seed}, "out": str(folder / "cell")}


def test_one_process_runs_job_after_job(sham_workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    worker = WorkerProcess(None)
    assert worker.run_job(job(4, tmp_path)) == {"failed": "no luck"}
    assert worker.run_job(job(0, tmp_path)) == {"done": True}
    worker.close()
    assert [process.returncode for process in sham_workers] == [0]


@pytest.mark.parametrize(
    ("seed", "reason"),
    [(1, "its process was killed, as happens when memory runs out"), (3, "its process ended with exit status 5")],
)
def test_a_process_that_is_lost(
    seed: int, reason: str, sham_workers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    with pytest.raises(WorkerLostError, match=reason):
        WorkerProcess(None).run_job(job(seed, tmp_path))


def test_none_is_started_after_it_was_terminated(sham_workers: list[subprocess.Popen[str]]) -> None:
    worker = WorkerProcess(None)
    worker.terminate()
    with pytest.raises(WorkerLostError):
        worker.run_job({})
    assert sham_workers == []


def test_cores_are_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    threads: list[int | None] = []
    monkeypatch.setattr(worker_process.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(worker_process, "WorkerProcess", threads.append)
    cells = planned(tmp_path, seeds=range(2))
    for jobs in (1, 3, 9):
        Scheduler(Status.scan(cells, jobs), "model")
    assert threads == [None, 2, 2, 2, 2, 2, 2, 2]
