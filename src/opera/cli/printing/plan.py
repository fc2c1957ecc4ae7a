"""What ``--plan`` prints: the cells of a grid, and how long they take by those that are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import console
from opera.core.terminal import json_text, say
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.run import Status, format_duration, seconds_of


def print_plan(
    status: Status, as_json: bool, about: Mapping[str, Any] | None = None, notes: Sequence[str] = ()
) -> None:
    """Print the cells, and ``notes`` below them; as JSON ``about`` stands before them."""
    if as_json:
        say(json_text({**(about or {}), **plan_records(status)}))
        return
    console().print(plan_table(status))
    say("\n".join([f"{len(status.done)} of {len(status.cells)} cells done", *notes]))


def plan_records(status: Status) -> dict[str, Any]:
    """What a grid will run, for JSON: each cell with its seconds, as far as they are known."""
    cells = [
        {
            "data": cell.data,
            "method": cell.label,
            "steps": cell.steps,
            "seed": cell.seed,
            "run": str(cell.folder),
            "finished": cell.folder in status.done,
            "seconds": seconds_of(status, cell),
        }
        for cell in status.cells
    ]
    return {"cells": cells, "jobs": status.jobs}


def plan_table(status: Status) -> Table:
    """A row per data set, method and number of steps, with the time of its cells."""
    rows: dict[tuple[str, str, int | None], list[Cell]] = {}
    for cell in status.cells:
        rows.setdefault((cell.data, cell.label, cell.steps), []).append(cell)
    table = Table()
    for column in ("data", "method", "steps", "seeds", "to run", "each, about", "together, about"):
        table.add_column(column, justify="left" if column in ("data", "method") else "right")
    for cells in rows.values():
        cell, each = cells[0], seconds_of(status, cells[0])
        remaining = sum(cell.folder not in status.done for cell in cells)
        table.add_row(
            Text(cell.data_name),
            Text(cell.label),
            "auto" if cell.steps is None else f"{cell.steps:,}",
            ", ".join(str(cell.seed) for cell in cells),
            str(remaining),
            *("" if each is None else format_duration(each * count) for count in (1, remaining)),
        )
    return table
