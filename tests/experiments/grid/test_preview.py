"""``opera compare --plan``: what a grid will run, and how long by the cells that are done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from grids import finish_cell, planned
from opera.cli.printing.plan import plan_records, plan_table
from opera.experiments.grid.run import Status, seconds_of

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """Of three methods, dp is finished, in a second per step."""
    cells = planned(tmp_path, data=["data/[red]x"], methods=["ft", "dp", "rp"])
    for cell in cells:
        if cell.label == "dp":
            finish_cell(cell, seconds=10.0)
    return Status.scan(cells)


def test_the_plan_as_a_table(status: Status) -> None:
    screen = Console(width=120, highlight=False)
    with screen.capture() as captured:
        screen.print(plan_table(status))
    rows = [line for line in captured.get().splitlines() if "[red]x" in line]
    cells = [[part.strip() for part in row.strip("│").split("│")] for row in rows]
    assert ["[red]x", "dp", "10", "0, 1", "0", "10 s", "0 s"] in cells
    assert ["[red]x", "rp", "10", "0, 1", "2", "10 s", "20 s"] in cells


def test_the_plan_as_json(status: Status) -> None:
    plan = plan_records(status)
    assert plan["jobs"] == 1
    first, second, *_ = plan["cells"]
    assert first == {
        "data": "data/[red]x", "method": "ft", "steps": 10, "seed": 0, "run": str(status.cells[0].folder),
        "finished": False, "seconds": 10.0,
    }  # fmt: skip
    assert second["finished"]


def test_seconds_are_those_of_the_finished_cells_on_the_same_data(tmp_path: Path) -> None:
    cells = planned(tmp_path, data=["data/x", "data/y"], methods=["ft"], seeds=[0], steps=[10, 20])
    finish_cell(cells[0], seconds=5.0)
    status = Status.scan(cells)
    assert [seconds_of(status, cell) for cell in cells] == [5.0, 10.0, None, None]
    automatic = planned(tmp_path / "auto", methods=["dp:epochs=3:batch_size=100"], steps=None)
    finish_cell(automatic[0], seconds=15.0)
    assert seconds_of(Status.scan(automatic), automatic[1]) == 15.0


def test_a_plan_writes_nothing(call: Call, beir: Path, static_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    steps = ["--methods", "ft,dp", "--steps", "100000,200000", "--plan"]
    code, text, error = call(beir, "--model", static_model, "--out", out, *steps)
    assert code == 0, error
    assert not out.exists()
    rows = [[part.strip() for part in line.strip("│").split("│")] for line in text.splitlines() if "│ topics" in line]
    assert [row[:5] for row in rows] == [
        ["topics", method, steps, "0, 1, 2", "3"] for steps in ("100,000", "200,000") for method in ("ft", "dp")
    ]
    assert "0 of 12 cells done" in text
