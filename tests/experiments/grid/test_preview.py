"""``opera compare --plan``: what a grid will run, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from grids import SITUATION, finish_cell, planned
from opera.cli.compare import print_cells
from opera.cli.screen import Screen
from opera.experiments.grid import run as running
from opera.experiments.grid.preview import Timing, plan_records, seconds_left
from opera.experiments.grid.run import Status
from processes import ForkedWorker

Call = Callable[..., tuple[int, str, str]]
TIMING = Timing(per_step=0.5, overhead=3.0, encoding=5.0, model_bytes=1, situation=SITUATION)


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """Of three methods, dp is finished."""
    cells = planned(tmp_path, data=["data/[red]x"], methods=["ft", "dp", "rp"])
    for cell in cells:
        if cell.label == "dp":
            finish_cell(cell)
    return Status.scan(cells)


def test_the_plan_as_a_table(status: Status) -> None:
    text = StringIO()
    print_cells(Screen(text, 120), status, {"data/[red]x": TIMING})
    rows = [line for line in text.getvalue().splitlines() if "[red]x" in line]
    cells = [[part.strip() for part in row.strip("│").split("│")] for row in rows]
    assert ["[red]x", "dp", "10", "0, 1", "0", "8 s", "0 s"] in cells
    assert ["[red]x", "rp", "10", "0, 1", "2", "8 s", "16 s"] in cells


def test_the_plan_as_json(status: Status) -> None:
    plan = plan_records(status, {"data/[red]x": TIMING})
    assert (plan["jobs"], plan["seconds_left"]) == (1, 4 * 8.0 + 5)
    first, second, *_ = plan["cells"]
    assert first == {
        "data": "data/[red]x", "method": "ft", "steps": 10, "seed": 0, "run": str(status.cells[0].folder),
        "finished": False, "seconds": 8.0,
    }  # fmt: skip
    assert second["finished"]
    plan = plan_records(status, {})
    assert (plan["cells"][0]["seconds"], plan["seconds_left"]) == (None, None)


@pytest.mark.parametrize(("jobs", "seconds"), [(1, 84), (2, 42), (3, 34), (100, 13)])
def test_the_time_left_by_how_many_run_at_once(jobs: int, seconds: float, tmp_path: Path) -> None:
    """With three: 8 13 13, 8 8 13 and 13 8."""
    status = Status.scan(planned(tmp_path, steps=[10, 20]), jobs)
    assert seconds_left(status, {"data/x": replace(TIMING, encoding=0.0)}) == seconds


def test_a_plan_times_real_steps_and_writes_nothing(
    call: Call, beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.subprocess, "Popen", ForkedWorker)
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
