"""What ``--plan`` prints: the cells of a grid, their times and the disk they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import console
from opera.core.terminal import json_text, say
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.preview import Timings, plan_records, seconds_left
from opera.experiments.grid.run import Status, format_duration


def print_plan(
    status: Status,
    timings: Timings,
    as_json: bool,
    about: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print the cells, and ``notes`` below them; as JSON ``about`` stands before them."""
    if as_json:
        say(json_text({**(about or {}), **plan_records(status, timings)}))
        return
    console().print(plan_table(status, timings))
    left, state = (
        seconds_left(status, timings),
        f"{len(status.done)} of {len(status.cells)} cells done",
    )
    if status.waiting:
        state += (
            ", time left not known" if left is None else f", about {format_duration(left)} left"
        )
    lines = [state]
    if timings:
        each = max(timing.model_bytes for timing in timings.values()) / 1e6
        total = each * len(status.waiting) / 1000
        lines.append(
            f"each run keeps its trained model, about {each:,.0f} MB: {total:,.1f} GB in all"
        )
    say("\n".join([*lines, *notes]))


def plan_table(status: Status, timings: Timings) -> Table:
    """A row per data set, method and number of steps, with the time of its cells."""
    rows: dict[tuple[str, str, int | None], list[Cell]] = {}
    for cell in status.cells:
        rows.setdefault((cell.data, cell.label, cell.steps), []).append(cell)
    table = Table()
    for column in ("data", "method", "steps", "seeds", "to run", "each, about", "together, about"):
        table.add_column(column, justify="left" if column in ("data", "method") else "right")
    for cells in rows.values():
        cell, timing = cells[0], timings.get(cells[0].data)
        steps = cell.steps if timing is None else timing.steps(cell)
        remaining = sum(cell.folder not in status.done for cell in cells)
        times = ["", ""]
        if timing is not None:
            each = timing.seconds(cell)
            times = [format_duration(each), format_duration(each * remaining)]
        table.add_row(
            Text(cell.data_name),
            Text(cell.label),
            "auto" if steps is None else f"{steps:,}",
            ", ".join(str(cell.seed) for cell in cells),
            str(remaining),
            *times,
        )
    return table
