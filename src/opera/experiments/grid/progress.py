"""Progress of a grid: one live table on a terminal, elsewhere a line for each cell that starts or ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from opera.core.console import SafeConsole
from opera.core.terminal import say
from opera.experiments.analysis import PRIMARY
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.run import OnChange
from opera.experiments.grid.status import Status, format_duration
from opera.runs.folder import Run
from opera.runs.housekeeping import last_complete_checkpoint

RESERVED_LINES = 6
"""Lines of the terminal kept free below the live table."""


@contextmanager
def live_progress(status: Status) -> Iterator[OnChange]:
    """Show the status on standard error; yields the function to call when it changes."""
    screen = SafeConsole(stderr=True)
    if not screen.is_terminal:
        yield _Lines(status)
        return
    with Live(_live_table(status, screen.height), console=screen, auto_refresh=False) as live:

        def on_change(status: Status, ended: Cell | None) -> None:
            if ended is not None and ended.folder in status.failed:
                live.console.print(Text(_failure_message(status, ended), style="red"))
            live.update(_live_table(status, screen.height), refresh=True)

        yield on_change


def progress_line(status: Status) -> str:
    """One sentence on the state of a grid."""
    parts = [f"{len(status.done)} of {len(status.cells)} cells done"]
    if status.running:
        parts.append(f"{len(status.running)} running")
    if status.failed:
        parts.append(f"{len(status.failed)} failed")
    if status.waiting or status.running:
        left = status.seconds_left()
        parts.append("time left not known yet" if left is None else f"about {format_duration(left)} left")
    return ", ".join(parts)


def table_rows(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group cells by data set, method and number of steps: the seeds of each share a row."""
    rows: dict[tuple[str, str, int | None], list[Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.data, cell.label, cell.steps), []).append(cell)
    return list(rows.values())


def format_steps(steps: int | None) -> str:
    """Format a number of steps; ``auto`` while an automatic one is not known."""
    return "auto" if steps is None else f"{steps:,}"


def log_tail(log: Path, lines: int = 3) -> str:
    """Return the last lines of a log; empty if there is none."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return "\n".join(text.strip().splitlines()[-lines:])


def _live_table(status: Status, height: int) -> RenderableType:
    """The live table with as many rows as fit the terminal, and the progress line."""
    rows = table_rows(status.cells)
    shown = _fitting_rows(status, rows, max(3, height - RESERVED_LINES))
    table = Table()
    for column in ("data", "method", "steps", "seeds", f"{PRIMARY} so far"):
        table.add_column(column, justify="right" if column == "steps" else "left")
    for cells in shown:
        cell = cells[0]
        marks = Text(" ").join(_mark(status, cell) for cell in cells)
        steps = format_steps(status.steps(cell))
        table.add_row(Text(cell.data_name), Text(cell.label), steps, marks, _mean_so_far(status, cells))
    hidden = len(rows) - len(shown)
    more = [Text(f"and {hidden} more rows", style="dim")] if hidden else []
    return Group(table, *more, Text(progress_line(status)))


def _fitting_rows(status: Status, rows: list[list[Cell]], room: int) -> list[list[Cell]]:
    """All rows, or as many as fit: running ones first, then waiting ones."""
    if len(rows) <= room:
        return rows
    waiting = {cell.folder for cell in status.waiting}
    running_rows = [row for row in rows if any(cell.folder in status.running for cell in row)]
    waiting_rows = [row for row in rows if row not in running_rows and any(cell.folder in waiting for cell in row)]
    chosen = (running_rows + waiting_rows)[:room]
    return [row for row in rows if row in chosen]


def _mark(status: Status, cell: Cell) -> Text:
    if cell.folder in status.done:
        return Text("✓", style="green")
    if cell.folder in status.failed:
        return Text("✗", style="red")
    if cell.folder in status.running:
        steps = status.steps(cell)
        return Text("…" if steps is None else f"{status.running[cell.folder].step / steps:.0%}", style="bold")
    return Text("·", style="dim")


def _mean_so_far(status: Status, cells: Sequence[Cell]) -> str:
    values = [_primary_measure(cell.folder) for cell in cells if cell.folder in status.done]
    if not values:
        return ""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


class _Lines:
    """Prints a line for each cell that starts, and one for each that ends.

    Args:
        status: the grid before any of its cells starts.
    """

    def __init__(self, status: Status) -> None:
        self._unannounced = {cell.folder: (number, cell) for number, cell in enumerate(status.cells, start=1)}
        self._resuming = {cell.folder for cell in status.waiting if last_complete_checkpoint(cell.folder) is not None}

    def __call__(self, status: Status, ended: Cell | None) -> None:
        if ended is not None:
            _print_ended(status, ended)
        for folder in list(status.running):
            if folder in self._unannounced:
                number, cell = self._unannounced.pop(folder)
                resumes = "; resumes from its checkpoint" * (folder in self._resuming)
                say(
                    f"started: {cell.title} ({number} of {len(status.cells)}){resumes}; log: {cell.log}",
                    file=sys.stderr,
                )


def _print_ended(status: Status, ended: Cell) -> None:
    if ended.folder in status.failed:
        say(_failure_message(status, ended), file=sys.stderr)
    elif ended.folder in status.done:
        value = _primary_measure(ended.folder)
        say(f"done: {ended.title}: {PRIMARY} {value:.4f}; {progress_line(status)}", file=sys.stderr)


@cache
def _primary_measure(folder: Path) -> float:
    """Read a finished cell's measure, once: the table is redrawn several times per second."""
    return Run.open(folder).measures["after"][PRIMARY]


def _failure_message(status: Status, cell: Cell) -> str:
    reason = status.failed[cell.folder]
    tail = log_tail(cell.log)
    details = "" if reason in tail else f"\n{tail}"
    return f"failed: {cell.title}: {reason}{details}\n  full log: {cell.log}"
