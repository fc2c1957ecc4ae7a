"""How a grid looks while it runs: one table on a terminal, a line for each cell that ends elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from opera.experiments.analysis import PRIMARY
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.run import last_words
from opera.experiments.grid.status import Status, in_words
from opera.runs.folder import Run

ROOM = 6
"""Lines of a terminal that are left to what is not the table."""


@contextmanager
def shown(status: Status) -> Iterator[Callable[[Status, Cell | None], None]]:
    """Show a status on standard error; yields what must be called when it changes."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        yield _print_ended
        return
    with Live(_picture(status, screen.height), console=screen, auto_refresh=False) as live:

        def changed(status: Status, ended: Cell | None) -> None:
            if ended is not None and ended.place in status.failed:
                live.console.print(Text(_failure(status, ended), style="red"))
            live.update(_picture(status, screen.height), refresh=True)

        yield changed


def progress_line(status: Status) -> str:
    """One sentence on how a grid stands."""
    parts = [f"{len(status.done)} of {len(status.cells)} cells done"]
    if status.running:
        parts.append(f"{len(status.running)} running")
    if status.failed:
        parts.append(f"{len(status.failed)} failed")
    if status.waiting or status.running:
        left = status.seconds_left()
        parts.append("time left not known yet" if left is None else f"about {in_words(left)} left")
    return ", ".join(parts)


def disk_line(status: Status) -> str:
    """One sentence on the disk that the cells will take; empty where the model was not looked at."""
    if status.model_bytes is None:
        return ""
    each, count = status.model_bytes / 1e6, len(status.waiting)
    return f"each run keeps its trained model, about {each:,.0f} MB: {each * count / 1000:,.1f} GB in all"


def plan_records(status: Status) -> dict[str, Any]:
    """What a grid will run, for JSON: each cell with its seconds, and all together."""
    cells = [
        {
            "data": cell.data,
            "method": cell.label,
            "steps": cell.steps,
            "seed": cell.seed,
            "run": str(cell.place),
            "finished": cell.place in status.done,
            "seconds": None if (rate := status.rate(cell)) is None else round(rate.seconds(cell.steps), 1),
        }
        for cell in status.cells
    ]
    return {"cells": cells, "jobs": status.jobs, "seconds_left": status.seconds_left()}


def plan_table(status: Status) -> Table:
    """What a grid will run: a row a data set, method and number of steps, with its time."""
    table = Table()
    for column in ("data", "method", "steps", "seeds", "to run", "each, about", "together, about"):
        table.add_column(column, justify="left" if column in ("data", "method") else "right")
    for cells in _rows(status.cells):
        cell, rate = cells[0], status.rate(cells[0])
        waiting = [cell for cell in cells if cell.place not in status.done]
        each = rate.seconds(cell.steps) if rate else None
        table.add_row(
            Text(cell.data_name),
            Text(cell.label),
            f"{cell.steps:,}",
            ", ".join(str(cell.seed) for cell in cells),
            str(len(waiting)),
            "" if each is None else in_words(each),
            "" if each is None else in_words(each * len(waiting)),
        )
    return table


def _picture(status: Status, height: int) -> RenderableType:
    """The live table; rows that are done or wait give way where the terminal is too low for all."""
    rows = list(_rows(status.cells))
    room, hidden = max(3, height - ROOM), 0
    if len(rows) > room:
        active = [row for row in rows if any(cell.place in status.running for cell in row)]
        others = [row for row in rows if row not in active and any(cell in status.waiting for cell in row)]
        chosen = (active + others)[:room]
        hidden, rows = len(rows) - len(chosen), [row for row in rows if row in chosen]
    table = Table()
    for column in ("data", "method", "steps", "seeds", f"{PRIMARY} so far"):
        table.add_column(column, justify="right" if column == "steps" else "left")
    for cells in rows:
        cell = cells[0]
        marks = Text(" ").join(_mark(status, cell) for cell in cells)
        table.add_row(Text(cell.data_name), Text(cell.label), f"{cell.steps:,}", marks, _so_far(status, cells))
    more = [Text(f"and {hidden} rows more", style="dim")] if hidden else []
    return Group(table, *more, Text(progress_line(status)))


def _mark(status: Status, cell: Cell) -> Text:
    if cell.place in status.done:
        return Text("✓", style="green")
    if cell.place in status.failed:
        return Text("✗", style="red")
    if cell.place in status.running:
        return Text(f"{status.running[cell.place].step / cell.steps:.0%}", style="bold")
    return Text("·", style="dim")


def _so_far(status: Status, cells: Sequence[Cell]) -> str:
    values = [_measured(cell.place) for cell in cells if cell.place in status.done]
    if not values:
        return ""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def _rows(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    keys = dict.fromkeys((cell.data, cell.label, cell.steps) for cell in cells)
    for key in keys:
        yield [cell for cell in cells if (cell.data, cell.label, cell.steps) == key]


def _print_ended(status: Status, ended: Cell | None) -> None:
    if ended is None:
        return
    if ended.place in status.failed:
        print(_failure(status, ended), file=sys.stderr)
    elif ended.place in status.done:
        value = _measured(ended.place)
        print(f"done: {ended.title}: {PRIMARY} {value:.4f}; {progress_line(status)}", file=sys.stderr, flush=True)


@cache
def _measured(place: Path) -> float:
    """Read what a finished cell came to: once, as the table is drawn several times a second."""
    return Run.open(place).measures["after"][PRIMARY]


def _failure(status: Status, cell: Cell) -> str:
    reason = status.failed[cell.place]
    words = last_words(cell.log)
    told = "" if reason in words else f"\n{words}"
    return f"failed: {cell.title}: {reason}{told}\n  all it said: {cell.log}"
