"""What ``opera reproduce`` prints: its table, and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.paper import print_paper_table
from opera.core.console import SafeConsole
from opera.data.catalogue import PAPER_SETS
from opera.experiments.grid.progress import format_steps, table_rows
from opera.experiments.grid.status import format_duration
from opera.experiments.reproduce.estimate import Estimate, counted_set
from opera.experiments.reproduce.results import Reproduced
from opera.experiments.reproduce.sets import is_here

FILE_WIDTH = 160
SHORT = 60.0
"""Seconds that no estimate tells apart."""


def print_reproduced(screen: Console, reproduced: Reproduced) -> None:
    """Print the table of the paper beside ours."""
    print_paper_table(screen, reproduced.plan.shared.table, reproduced.rows, reproduced.models)
    for note in reproduced.notes:
        screen.print(Text(note))


def reproduced_text(reproduced: Reproduced) -> str:
    """The same as plain text, for a file."""
    screen = SafeConsole(file=StringIO(), width=FILE_WIDTH, record=True, color_system=None)
    print_reproduced(screen, reproduced)
    return screen.export_text()


def print_estimate(screen: Console, estimate: Estimate) -> None:
    """Print the cells with their times, the data sets with their disk, totals and assumptions."""
    machines = [machine.name for machine in estimate.machines]
    screen.print(_cell_table(estimate, machines))
    screen.print(_set_table(estimate, machines))
    remaining = sum(cell.folder not in estimate.done for cell in estimate.cells)
    screen.print(Text(f"{remaining} of {len(estimate.cells)} cells to run, one after another:"))
    for machine in estimate.machines:
        whole = estimate.seconds(machine)
        screen.print(Text(f"  {machine.name}: {'about ' * (whole >= SHORT)}{_hours(whole)}"))
    if estimate.bytes:
        checkpoints = _gigabytes(estimate.checkpoints)
        screen.print(
            Text(f"  disk: about {_gigabytes(estimate.bytes)}, {checkpoints} of it checkpoints while cells run")
        )
    for line in (*estimate.notes, *(f"left out: {name}: {why}" for name, why in estimate.plan.left_out.items())):
        screen.print(Text(line))


def _cell_table(estimate: Estimate, machines: Sequence[str]) -> Table:
    table = Table()
    for column in ("data", "method", "steps", "seeds", *(f"each, {name}" for name in machines)):
        table.add_column(column, justify="left" if column in ("data", "method") else "right")
    for cells in table_rows(estimate.cells):
        cell = cells[0]
        each = [_hours(estimate.cell_seconds(cell, name)) for name in machines]
        seeds = ", ".join(f"{cell.seed}{'✓' if cell.folder in estimate.done else ''}" for cell in cells)
        table.add_row(*map(Text, (cell.data_name, cell.label, format_steps(cell.steps), seeds, *each)))
    return table


def _set_table(estimate: Estimate, machines: Sequence[str]) -> Table:
    kinds = list(dict.fromkeys(kind for sizes in estimate.disk.values() for kind in sizes))
    table = Table()
    for column in ("data", "documents", *(f"encoding and mining once, {name}" for name in machines), *kinds):
        table.add_column(column, justify="left" if column == "data" else "right")
    for name, sizes in estimate.disk.items():
        once = [_hours(estimate.costs[machine][name].once) for machine in machines]
        asked = PAPER_SETS[name].on_request and not is_here(estimate.plan.sources[name])
        disk = [
            "on request" if asked and kind == "download" and not sizes[kind] else _gigabytes(sizes[kind])
            for kind in kinds
        ]
        table.add_row(*map(Text, (name, f"{counted_set(estimate.plan, name).documents:,}", *once, *disk)))
    return table


def _hours(seconds: float) -> str:
    """A duration; above four days in days."""
    if seconds < SHORT:
        return "under a minute"
    days = seconds / 86_400
    return format_duration(seconds) if days < 4 else f"{days:,.0f} days"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.0f} MB"
