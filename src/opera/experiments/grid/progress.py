"""Progress of a grid: a line for each cell that starts or ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from opera.core.terminal import say
from opera.experiments.analysis import PRIMARY
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.status import Status, format_duration
from opera.runs.folder import Run
from opera.runs.housekeeping import last_complete_checkpoint


class Progress:
    """Prints a line for each cell that starts, and one for each that ends, to standard error.

    Args:
        status: the grid before any of its cells starts.
    """

    def __init__(self, status: Status) -> None:
        self._resuming = {
            cell.folder
            for cell in status.waiting
            if last_complete_checkpoint(cell.folder) is not None
        }

    def __call__(self, status: Status, cell: Cell) -> None:
        """Tell of a cell that has started or ended."""
        if cell.folder in status.failed:
            say(_failure_message(status, cell), file=sys.stderr)
        elif cell.folder in status.done:
            value = Run.open(cell.folder).measures["after"][PRIMARY]
            say(
                f"done: {cell.title}: {PRIMARY} {value:.4f}; {progress_line(status)}",
                file=sys.stderr,
            )
        else:
            number = f"{list(status.cells).index(cell) + 1} of {len(status.cells)}"
            resumes = "; resumes from its checkpoint" * (cell.folder in self._resuming)
            say(f"started: {cell.title} ({number}){resumes}; log: {cell.log}", file=sys.stderr)


def progress_line(status: Status) -> str:
    """One sentence on the state of a grid."""
    parts = [f"{len(status.done)} of {len(status.cells)} cells done"]
    if status.running:
        parts.append(f"{len(status.running)} running")
    if status.failed:
        parts.append(f"{len(status.failed)} failed")
    if status.waiting or status.running:
        left = status.seconds_left()
        parts.append(
            "time left not known yet" if left is None else f"about {format_duration(left)} left"
        )
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


def _failure_message(status: Status, cell: Cell) -> str:
    reason = status.failed[cell.folder]
    tail = log_tail(cell.log)
    details = "" if reason in tail else f"\n{tail}"
    return f"failed: {cell.title}: {reason}{details}\n  full log: {cell.log}"
