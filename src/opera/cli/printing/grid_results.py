"""What ``opera compare`` prints: the tables of the report, and the verdict."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.results import warn_of_few
from opera.experiments.analysis import (
    PAPERS,
    PRIMARY,
    RECALL,
    UNTRAINED,
    Comparison,
    ResultsTable,
    format_settings,
)
from opera.experiments.analysis.verdict import verdict
from opera.experiments.report.tables import ReportTable, ranks_table, tables_of
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.guard_words import dev_sentence

ON_THE_PAGE_ALONE = {*DEFAULT_MEASURES, "won", "lost", "dev queries", "seen in dev", "seen in test"}
"""Columns that a terminal is too narrow for."""


def print_grid_results(screen: Console, comparison: Comparison) -> None:
    """Print the tables per data set and number of steps, convergence, ranks and the verdict."""
    if comparison.shared:
        screen.print(Text(f"all runs: {format_settings(comparison.shared)}", style="dim"))
    for results in comparison.tables:
        _print_tables(screen, comparison, results)
    _print_convergence(screen, comparison)
    if (ranks := ranks_table(comparison)) is not None:
        _print_table(screen, ranks)
    for results, conclusion in zip(comparison.final_tables(), verdict(comparison), strict=True):
        screen.print(Text(f"\n{conclusion.title}", style="bold"))
        for bullet in conclusion.bullets:
            screen.print(Text(f"- {bullet}"))
        best = results.best(PRIMARY)
        if best != UNTRAINED:
            screen.print(Text(f"- Model: {comparison.first_run(results, best).model_path}"))
    if comparison.missing:
        verb = "is" if comparison.missing == 1 else "are"
        cells = f"{comparison.missing} of the grid's {comparison.planned} cells"
        screen.print(Text(f"{cells} {verb} not finished", style="bold"))
    for reason, found in comparison.left_out.items():
        for run in found:
            screen.print(Text(f"left out, {reason}: {run}"))


def _print_tables(screen: Console, comparison: Comparison, results: ResultsTable) -> None:
    title = f"\n{results.name}, {results.steps:,} steps, {results.queries:,} test queries"
    screen.print(Text(title, style="bold"))
    for table in tables_of(comparison, results):
        _print_table(screen, table)
    warn_of_few(screen, results.queries)
    guards = [row.guard for row in results.rows if row.guard is not None]
    for sentence in dict.fromkeys(dev_sentence(guard.typical) for guard in guards):
        screen.print(Text(sentence, style="dim"))


def _print_table(screen: Console, table: ReportTable) -> None:
    """Print a table without the lines and the columns that widen it."""
    hidden = ON_THE_PAGE_ALONE - {PRIMARY, PAPERS, RECALL}
    names = [name for name in table.columns if name not in hidden]
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        head = name.replace("retrieved_ideal_", "retrieved- ideal ")
        shown.add_column(head, justify="left" if name == "method" else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(table.shown(row, name)) for name in names))
    screen.print(Text(table.caption, style="dim"))
    screen.print(shown)


def _print_convergence(screen: Console, comparison: Comparison) -> None:
    for convergence in comparison.convergence:
        if convergence.method == comparison.baseline:
            name = comparison.final(convergence.data).name
            best = f"{convergence.target:.3f}, at {convergence.baseline_steps:,} steps"
            text = f"\n{name}: {convergence.method} has its best {PRIMARY}, {best}; matched by"
        elif convergence.steps is None:
            text = f"  {convergence.method}: never"
        else:
            times = f"{convergence.seconds_ratio:.2f} × the time"
            text = f"  {convergence.method}: {convergence.steps:,} steps, {times}"
        screen.print(Text(text))
