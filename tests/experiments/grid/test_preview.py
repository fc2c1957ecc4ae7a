"""``opera compare --plan``: what a grid will run, and how long it will take."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grids import SITUATION, finish_cell, planned
from opera.experiments.grid import worker_process
from opera.experiments.grid.preview import plan_records, plan_table, time_grid
from opera.experiments.grid.status import Rate, Status
from opera.experiments.grid.worker_process import WorkerProcess

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """Of three methods, dp is finished."""
    cells = planned(tmp_path, data=["data/[red]x"], methods=["ft", "dp", "rp"])
    for cell in cells:
        if cell.label == "dp":
            finish_cell(cell)
    return Status.scan(cells)


def test_the_plan_as_a_table(status: Status) -> None:
    screen = Console(width=120, highlight=False)
    with screen.capture() as captured:
        screen.print(plan_table(status))
    rows = [line for line in captured.get().splitlines() if "[red]x" in line]
    cells = [[part.strip() for part in row.strip("│").split("│")] for row in rows]
    assert ["[red]x", "dp", "10", "0, 1", "0", "8 s", "0 s"] in cells
    assert ["[red]x", "rp", "10", "0, 1", "2", "8 s", "16 s"] in cells


def test_the_plan_as_json(status: Status) -> None:
    plan = plan_records(status)
    assert (plan["jobs"], plan["seconds_left"]) == (1, 32.0)
    first, second, *_ = plan["cells"]
    assert first == {
        "data": "data/[red]x", "method": "ft", "steps": 10, "seed": 0, "run": str(status.cells[0].folder),
        "finished": False, "seconds": 8.0,
    }  # fmt: skip
    assert second["finished"]


def test_ctrl_c_while_it_is_timed(
    call: Call, beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: WorkerProcess, job: Mapping[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    monkeypatch.setattr(WorkerProcess, "run_job", interrupted)
    code, out, error = call(beir, "--model", static_model, "--out", tmp_path / "grid", "--plan")
    assert (code, out) == (130, "")
    assert "opera: interrupted; nothing was written" in error


@pytest.mark.parametrize(("jobs", "threads"), [(1, None), (2, 4), (4, 2), (50, 2)])
def test_a_cell_is_timed_with_the_cores_it_will_have(
    jobs: int, threads: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int | None] = []

    def timing(self: WorkerProcess, job: Mapping[str, Any]) -> dict[str, Any]:
        used.append(self._threads)
        costs = {"per_step": 0.5, "overhead": 3.0, "encoding": 0.0, "model_bytes": 1}
        return {"timing": {**costs, "situation": asdict(SITUATION)}}

    monkeypatch.setattr(worker_process.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(WorkerProcess, "run_job", timing)
    status = Status.scan(planned(tmp_path), jobs)
    time_grid(status, "model")
    assert used == [threads]
    assert status.timed == {"data/x": Rate(0.5, 3.0)}
    assert status.situations == {"data/x": SITUATION}


def test_a_plan_times_real_steps_and_writes_nothing(call: Call, beir: Path, static_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    code, text, error = call(
        beir, "--model", static_model, "--out", out, "--methods", "ft,dp", "--steps", "100000,200000", "--plan",
        "--set", "batch_size=4",
    )  # fmt: skip
    assert code == 0, error
    assert not out.exists()
    rows = [[part.strip() for part in line.strip("│").split("│")] for line in text.splitlines() if "│ topics" in line]
    assert [row[:5] for row in rows] == [
        ["topics", method, steps, "0, 1, 2", "3"] for steps in ("100,000", "200,000") for method in ("ft", "dp")
    ]
    assert all(row[5].split()[1] in ("s", "min", "h") and row[6] for row in rows)
    assert "0 of 12 cells done, about" in text
    assert "each run keeps its trained model" in text
