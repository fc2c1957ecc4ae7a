"""A table of the paper side by side with the same figures of a grid of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from opera.core.errors import SettingError, nearest
from opera.experiments.analysis import Group
from opera.experiments.paper.grid_figures import MissingFigureError, grid_figure
from opera.experiments.paper.matching import PRETRAINED, GridRuns, data_key, our_measure
from opera.experiments.paper.readings import READINGS
from opera.experiments.paper.rows import ComparedRow, paper_figures
from opera.experiments.paper.summaries import summary_rows
from opera.experiments.paper.tables import SUMMARIES, PaperRow, PaperTable, table_rows


def align_table(
    table: PaperTable,
    groups: Iterable[Group] | None,
    data: str | None = None,
    steps: int | None = None,
    scaled: Callable[[int], int] | None = None,
) -> list[ComparedRow]:
    """Set a table of the paper side by side with a grid.

    Args:
        table: the table.
        groups: the grid's groups; ``None`` for the paper's figures alone.
        data: only this data set, without averages.
        steps: only runs with this number of steps; ``None`` for each data set's largest. A table by iterations has all
            of them, each beside the paper's figure at the same number, on the grid's data sets.
        scaled: the grid's number of steps for each of the paper's, where they differ.

    Returns:
        The paper's rows in its order, then averages over the data sets that the grid has, where those are not all.
        Where the grid has several readings of the paper, each row stands there once for each.

    Raises:
        SettingError: if the table does not have the data set.
    """
    rows = [row for row in table_rows(table.name) if row.data not in SUMMARIES]
    if data is not None:
        name = _find_data_set(data, table, list(dict.fromkeys(row.data for row in rows)))
        rows = [row for row in rows if row.data == name]
    grid = None if groups is None else GridRuns(groups, table, steps, scaled)
    if table.by_steps:
        rows = _rows_by_steps(rows, grid, steps)
    if grid is None:
        every = (
            rows
            if data is not None
            else [*rows, *(row for row in table_rows(table.name) if row.data in SUMMARIES)]
        )
        return [ComparedRow(row, None, paper_figures(row)) for row in every]
    readings = grid.readings(rows)
    compared = [_compared_row(row, grid, reading) for row in rows for reading in readings]
    compared += [] if data is not None else _summaries(table, compared, readings)
    return compared if len(readings) > 1 else [replace(row, reading="") for row in compared]


def as_records(
    table: PaperTable, rows: Sequence[ComparedRow], with_grid: bool
) -> list[dict[str, Any]]:
    """Flatten rows for JSON: a record per row and measure, with the grid's side if ``with_grid``."""
    records = []
    for compared in rows:
        row = compared.row
        for name, figure in compared.figures.items():
            record = {
                "table": table.name, "data": row.data, "part": row.part or None, "method": row.method,
                "steps": row.steps, "measure": name, "paper": figure.paper,
            }  # fmt: skip
            if with_grid:
                record |= {
                    "our_measure": our_measure(name),
                    "reading": compared.reading or None,
                    "grid": "run" if figure.ours else figure.missing,
                    "grid_steps": compared.steps,
                    "seeds": len(figure.ours),
                    "mean": figure.mean,
                    "sd": figure.sd,
                    "difference": figure.difference,
                }
            records.append(record)
    return records


def _find_data_set(data: str, table: PaperTable, known: Sequence[str]) -> str:
    for name in known:
        if data_key(name) == data_key(data):
            return name
    by_lower = {name.lower(): name for name in known}
    hint = nearest(data.lower(), by_lower)
    for lower, name in by_lower.items():
        hint = hint.replace(f"'{lower}'", f"'{name}'")
    raise SettingError(
        f"--data {data}: table {table.name} has no such data set{hint} (it has: {', '.join(known)})"
    )


def _rows_by_steps(
    rows: list[PaperRow], grid: GridRuns | None, steps: int | None
) -> list[PaperRow]:
    """Rows of a table by iterations, sorted by steps: of the grid's data sets, with the grid's own steps added."""
    sets = list(dict.fromkeys(row.data for row in rows))
    if grid is not None:
        sets = [name for name in sets if grid.has(name)] or sets
        rows = [row for row in rows if row.data in sets]
        rows = [row for row in rows if steps is None or row.steps in (0, steps)] + (
            [] if grid.scaled else _grid_only_rows(grid, rows)
        )
    return sorted(rows, key=lambda row: (sets.index(row.data), row.steps or 0))


def _grid_only_rows(grid: GridRuns, rows: Sequence[PaperRow]) -> list[PaperRow]:
    """Rows without values for the numbers of steps that the grid has and the paper does not."""
    known = {(row.data, row.method, row.steps) for row in rows}
    templates = {(row.data, row.method): row for row in rows if row.method != PRETRAINED}
    new = [
        replace(row, steps=count, values=dict.fromkeys(row.values))
        for (data, method), row in templates.items()
        for count in grid.step_counts(data)
        if (data, method, count) not in known
    ]
    return [
        row
        for row in new
        if any(grid.matching_groups(row, row.steps, reading) for reading in READINGS)
    ]


def _compared_row(row: PaperRow, grid: GridRuns, reading: str) -> ComparedRow:
    """A row beside the runs of a reading that match it."""
    groups, figures = grid.matching_groups(row, grid.steps_of(row), reading), paper_figures(row)
    if not groups:
        return ComparedRow(row, None, figures, reading)
    if len(groups) > 1:
        reason = f"{len(groups)} kinds match"
        figures = {name: replace(figure, missing=reason) for name, figure in figures.items()}
        return ComparedRow(
            row, groups[0].steps, figures, reading, tuple(group.method for group in groups)
        )
    for name, figure in figures.items():
        try:
            figures[name] = replace(figure, ours=grid_figure(name, row, groups[0], grid, reading))
        except MissingFigureError as error:
            figures[name] = replace(figure, missing=str(error))
    return ComparedRow(row, None if row.method == PRETRAINED else groups[0].steps, figures, reading)


def _summaries(
    table: PaperTable, rows: Sequence[ComparedRow], readings: Sequence[str]
) -> list[ComparedRow]:
    """The paper's averages and average ranks, with the grid's; those of each reading by themselves."""
    stated: dict[str, dict[str, PaperRow]] = {}
    for row in table_rows(table.name):
        if row.data in SUMMARIES:
            stated.setdefault(row.data, {})[row.method] = row
    return [
        replace(row, reading=reading)
        for kind, by_method in stated.items()
        for reading in readings
        for row in summary_rows(kind, by_method, [own for own in rows if own.reading == reading])
    ]
