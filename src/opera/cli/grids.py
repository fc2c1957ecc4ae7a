"""What ``opera compare`` and ``opera reproduce`` print of a grid's cells, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opera.cli.options import Answer
from opera.cli.screen import Screen
from opera.core.intervals import few_queries
from opera.core.terminal import place

if TYPE_CHECKING:
    from opera.experiments.analysis import Comparison
    from opera.experiments.grid.plan import Cell
    from opera.experiments.grid.preview import Timings
    from opera.experiments.grid.run import Status
    from opera.experiments.report.tables import ReportTable


def plan_answer(
    status: Status,
    timings: Timings,
    about: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Answer:
    """Answer ``--plan``: the cells, and ``notes`` below them; as JSON ``about`` stands before
    them.
    """
    from opera.experiments.grid.preview import plan_records, seconds_left
    from opera.experiments.grid.run import format_duration

    left, state = seconds_left(status, timings), f"{len(status.done)} of {len(status.cells)} cells"
    time = "time left not known" if left is None else f"about {format_duration(left)} left"
    lines = [f"{state} done" + (f", {time}" if status.waiting else "")]
    if timings:
        each = max(timing.model_bytes for timing in timings.values()) / 1e6
        total = each * len(status.waiting) / 1000
        size = f"about {each:,.0f} MB: {total:,.1f} GB in all"
        lines.append(f"each run keeps its trained model, {size}")

    def text(screen: Screen) -> None:
        print_cells(screen, status, timings)
        screen.lines(*lines, *notes)

    return Answer(lambda: {**(about or {}), **plan_records(status, timings)}, text)


def print_cells(screen: Screen, status: Status, timings: Timings) -> None:
    """Print a row per data set, method and number of steps, with the time of its cells."""
    from opera.experiments.grid.run import format_duration

    kinds: dict[tuple[str, str, int | None], list[Cell]] = {}
    for cell in status.cells:
        kinds.setdefault((cell.data, cell.label, cell.steps), []).append(cell)
    rows = []
    for (data, label, steps), cells in kinds.items():
        waiting, times = sum(cell.folder not in status.done for cell in cells), ["", ""]
        if (timing := timings.get(data)) is not None:
            steps, each = timing.steps(cells[0]), timing.seconds(cells[0])
            times = [format_duration(seconds) for seconds in (each, each * waiting)]
        seeds = ", ".join(str(cell.seed) for cell in cells)
        many = "auto" if steps is None else f"{steps:,}"
        rows.append((cells[0].data_name, label, many, seeds, str(waiting), *times))
    heads = ("data", "method", "steps", "seeds", "to run", "each, about", "together, about")
    screen.table(heads, rows, words=2)


def print_results(screen: Screen, comparison: Comparison, out: Path) -> None:
    """Print the tables per data set and number of steps, convergence, ranks and the verdict."""
    from opera.experiments.analysis import PRIMARY, UNTRAINED, format_settings
    from opera.experiments.analysis.verdict import verdict
    from opera.experiments.report.tables import ranks_table, tables_of
    from opera.runs.guard_words import dev_sentence

    if comparison.shared:
        screen.lines(f"all runs: {format_settings(comparison.shared)}", style="dim")
    for results in comparison.tables:
        steps, queries = f"{results.steps:,} steps", f"{results.queries:,} test queries"
        screen.heading(f"\n{results.name}, {steps}, {queries}")
        for table in tables_of(comparison, results):
            _print_table(screen, table)
        guards = [row.guard.typical for row in results.rows if row.guard is not None]
        screen.lines(few_queries(results.queries))
        screen.lines(*dict.fromkeys(map(dev_sentence, guards)), style="dim")
    screen.lines(*_convergence(comparison))
    if (ranks := ranks_table(comparison)) is not None:
        _print_table(screen, ranks)
    for results, conclusion in zip(comparison.final_tables(), verdict(comparison), strict=True):
        screen.heading(f"\n{conclusion.title}")
        screen.lines(*(f"- {bullet}" for bullet in conclusion.bullets))
        if (best := results.best(PRIMARY)) != UNTRAINED:
            screen.lines(f"- Model: {comparison.first_run(results, best).model_path}")
    if comparison.missing:
        cells = f"{comparison.missing} of the grid's {comparison.planned} cells"
        screen.heading(f"{cells} {'is' if comparison.missing == 1 else 'are'} not finished")
    for reason, found in comparison.left_out.items():
        screen.lines(*(f"left out, {reason}: {run}" for run in found))
    screen.lines(f"\nWrite an HTML report: opera report {place(out)}")


def _print_table(screen: Screen, table: ReportTable) -> None:
    """Print a table without the lines and the columns that widen it."""
    from rich import box

    from opera.experiments.analysis import PRIMARY, RECALL
    from opera.retrieval.measures import DEFAULT_MEASURES

    on_the_page_alone = {"won", "lost", "dev queries", "seen in dev", "seen in test"}
    hidden = on_the_page_alone | ({*DEFAULT_MEASURES} - {PRIMARY, RECALL})
    names = [name for name in table.columns if name not in hidden]
    screen.lines(table.caption, style="dim")
    screen.table(
        names,
        [[table.shown(row, name) for name in names] for row in table.rows],
        words=sum(name == "method" for name in names),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _convergence(comparison: Comparison) -> list[str]:
    """Say when each method first matches the baseline's best; the baseline's line comes first."""
    from opera.experiments.analysis import PRIMARY

    lines = []
    for each in comparison.convergence:
        text = (
            "  {0.method}: never"
            if each.steps is None
            else ("  {0.method}: {0.steps:,} steps, {0.seconds_ratio:.2f} × the time")
        )
        if each.method == comparison.baseline:
            best = "{0.target:.3f}, at {0.baseline_steps:,} steps; matched by"
            text = (
                f"\n{comparison.final(each.data).name}: {{0.method}} has its best {PRIMARY}, {best}"
            )
        lines.append(text.format(each))
    return lines
