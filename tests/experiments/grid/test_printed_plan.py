"""``opera compare --plan``: what a grid will run."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from grids import finish_cell, planned
from opera.cli.compare import print_plan
from opera.cli.screen import Screen
from opera.experiments.grid.run import Status


def test_the_plan_as_a_table_and_as_json(tmp_path: Path) -> None:
    cells = planned(tmp_path, data=["data/[red]x"], methods=["ft", "dp"])
    for cell in cells:
        if cell.label == "dp":
            finish_cell(cell)
    status, text = Status.scan(cells), StringIO()
    print_plan(Screen(text, 120), status)
    rows = [line for line in text.getvalue().splitlines() if "[red]x" in line]
    table = [[part.strip() for part in row.strip("│").split("│")] for row in rows]
    assert table == [["[red]x", "ft", "10", "0, 1", "2"], ["[red]x", "dp", "10", "0, 1", "0"]]
    assert "2 of 4 runs done" in text.getvalue()
    first, second, *_ = status.plan()["cells"]
    assert first == {
        "data": "data/[red]x", "method": "ft", "steps": 10, "seed": 0, "run": str(cells[0].folder), "finished": False,
    }  # fmt: skip
    assert second["finished"]
