"""The table of a run's data sets: what each is measured at, on its own documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import one_line
from opera.core.intervals import points
from opera.runs.record import mean_of_sets

if TYPE_CHECKING:
    from opera.runs.folder import Run

MEASURE = "nDCG@10"


def print_sets(screen: Console, run: Run) -> None:
    """Print a measure of a run on each of several data sets, before and after; nothing for a run on one."""
    sets = run.record.sets
    if not sets:
        return
    table = Table()
    table.add_column("data set")
    for column in ("drawn", "test queries", "before", "after", "points"):
        table.add_column(column, justify="right")
    for each in sets:
        drawn = "" if each.share_of_draws is None else f"{each.share_of_draws:.1%}"
        queries = str(each.counts.get("test_queries", 0))
        table.add_row(one_line(each.name), drawn, queries, *_values(each.test))
    table.add_row("mean of the sets", "", "", *_values(mean_of_sets(sets)))
    screen.print(Text(f"\n{MEASURE} on the test queries of each data set", style="bold"))
    screen.print(table)


def _values(test: dict[str, dict[str, float]] | None) -> tuple[str, ...]:
    if test is None:
        return ("", "", "")
    return change_cells(test["before"], test["after"])


def change_cells(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[str, str, str]:
    """Write a measure before and after, and its change in points, as cells of a table."""
    return f"{before[MEASURE]:.4f}", f"{after[MEASURE]:.4f}", points(after[MEASURE] - before[MEASURE])
