"""The table of a run's sizes: the measures of the first dimensions of its embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.sets import MEASURE, change_cells

if TYPE_CHECKING:
    from opera.runs.folder import Run


def print_sizes(screen: Console, run: Run) -> None:
    """Print a measure of a run at each size, before and after; nothing for a run without sizes."""
    sizes = run.record.matryoshka
    if not sizes:
        return
    table = Table()
    for column in ("dimensions", "before", "after", "points"):
        table.add_column(column, justify="right")
    whole = run.measures
    rows = [("all", whole["before"], whole["after"]), *((str(each.size), each.before, each.after) for each in sizes)]
    for size, before, after in rows:
        table.add_row(size, *change_cells(before, after))
    screen.print(Text(f"\n{MEASURE} of the first dimensions alone", style="bold"))
    screen.print(table)
