"""A table of the paper side by side with the same figures of a grid of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.errors import SettingError, nearest
from opera.experiments.analysis import BUCKETS, Group, mean_ranks, tertiles
from opera.experiments.paper.matching import (
    PRETRAINED,
    GridRuns,
    data_key,
    our_measure,
)
from opera.experiments.paper.tables import (
    AVERAGE,
    RANK_SEEN,
    RANK_UNSEEN,
    RANKS,
    SEEN,
    SUMMARIES,
    PaperRow,
    PaperTable,
    table_rows,
)

NOT_RUN, NOT_MEASURED, NOT_RECORDED = "not run", "not measured", "not recorded"
NO_BASELINE = "FT not run"
SPEED, SPEED_DIFFERENCE, OVERHEAD = "Iters/sec", "Speed Diff (%)", "Per-step overhead (%)"


class MissingFigureError(Exception):
    """The grid's runs lack a figure; the message says why."""


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of the paper and the grid's.

    Attributes:
        paper: the paper's figure; ``None`` if it does not state one.
        ours: the grid's, one per seed; empty if it has none.
        missing: why it has none.
        scale: factor of the difference: 100 gives points of a measure.
    """

    paper: float | None
    ours: tuple[float, ...] = ()
    missing: str = NOT_RUN
    scale: float = 100.0

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return float(np.mean(self.ours)) if self.ours else None

    @property
    def sd(self) -> float | None:
        """Sample standard deviation over the seeds; ``None`` for fewer than two."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """The grid's mean minus the paper's figure, scaled."""
        if self.mean is None or self.paper is None:
            return None
        return self.scale * (self.mean - self.paper)


@dataclass(frozen=True)
class ComparedRow:
    """A row of the paper with its figures and the grid's.

    Attributes:
        row: the paper's row; without values for a number of steps that only the grid has.
        steps: steps of the grid's runs; ``None`` if it has none, and for the untrained model.
        figures: by the paper's name of each measure.
        candidates: labels of the groups that match, if there are several and so none was taken.
    """

    row: PaperRow
    steps: int | None
    figures: dict[str, ComparedFigure]
    candidates: tuple[str, ...] = ()


def paper_figures(row: PaperRow) -> dict[str, ComparedFigure]:
    """The paper's side of a row; ranks, speeds, percentages and counts are not scaled."""
    is_rank = row.data in RANKS
    return {
        name: ComparedFigure(value, scale=100.0 if our_measure(name) and not is_rank else 1.0)
        for name, value in row.values.items()
    }


def align_table(
    table: PaperTable,
    groups: Iterable[Group] | None,
    data: str | None = None,
    steps: int | None = None,
    scaled: Callable[[int], int] | None = None,
) -> list[ComparedRow]:
    """Set a table of the paper side by side with a grid, or alone where ``groups`` is ``None``.

    ``data`` gives one data set, without averages, ``steps`` runs with this number of steps in place
    of each data set's largest. A table by iterations has each beside the paper's figure at the same
    number, on the grid's data sets. SettingError is raised where the runs have several presets.
    """
    rows = [row for row in table_rows(table.name) if row.data not in SUMMARIES]
    if data is not None:
        name = _find_data_set(data, table, list(dict.fromkeys(row.data for row in rows)))
        rows = [row for row in rows if row.data == name]
    grid = None if groups is None else GridRuns(groups, table, steps, scaled)
    if table.by_steps:
        rows = _rows_by_steps(rows, grid)
    averages = [row for row in table_rows(table.name) if row.data in SUMMARIES and data is None]
    if grid is None:
        return [ComparedRow(row, None, paper_figures(row)) for row in [*rows, *averages]]
    compared = [_compared_row(row, grid) for row in rows]
    return compared + [_average(row, compared) for row in averages]


def as_records(
    table: PaperTable, rows: Sequence[ComparedRow], with_grid: bool
) -> list[dict[str, Any]]:
    """Flatten rows for JSON: a record per row and measure, with the grid's side if there is one."""
    records = []
    for compared in rows:
        row = compared.row
        for name, figure in compared.figures.items():
            record = {
                "table": table.name, "data": row.data, "part": row.part or None,
                "method": row.method, "steps": row.steps, "measure": name, "paper": figure.paper,
            }  # fmt: skip
            if with_grid:
                record |= {
                    "our_measure": our_measure(name),
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
    by_key = {data_key(name): name for name in known}
    if data_key(data) in by_key:
        return by_key[data_key(data)]
    by_lower = {name.lower(): name for name in known}
    hint = nearest(data.lower(), by_lower)
    for lower, name in by_lower.items():
        hint = hint.replace(f"'{lower}'", f"'{name}'")
    has = f"table {table.name} has no such data set{hint} (it has: {', '.join(known)})"
    raise SettingError(f"--data {data}: {has}")


def _rows_by_steps(rows: list[PaperRow], grid: GridRuns | None) -> list[PaperRow]:
    """Rows of a table by iterations, on the grid's data sets, by steps."""
    sets = list(dict.fromkeys(row.data for row in rows))
    if grid is not None:
        sets = [name for name in sets if grid.on_data(name)] or sets
        rows = [row for row in rows if row.data in sets]
        if grid.steps is not None:
            rows = [row for row in rows if row.steps in (0, grid.steps)]
    return sorted(rows, key=lambda row: (sets.index(row.data), row.steps or 0))


def _compared_row(row: PaperRow, grid: GridRuns) -> ComparedRow:
    """A row beside the runs that match it."""
    groups, figures = grid.matching_groups(row), paper_figures(row)
    if not groups:
        return ComparedRow(row, None, figures)
    if len(groups) > 1:
        reason, labels = f"{len(groups)} kinds match", tuple(group.method for group in groups)
        figures = {name: replace(figure, missing=reason) for name, figure in figures.items()}
        return ComparedRow(row, groups[0].steps, figures, labels)
    for name, figure in figures.items():
        try:
            figures[name] = replace(figure, ours=grid_figure(name, row, groups[0], grid))
        except MissingFigureError as error:
            figures[name] = replace(figure, missing=str(error))
    return ComparedRow(row, None if row.method == PRETRAINED else groups[0].steps, figures)


def grid_figure(name: str, row: PaperRow, group: Group, grid: GridRuns) -> tuple[float, ...]:
    """Compute the grid's counterpart of a figure, one per seed, or one where seeds do not matter.

    ``name`` is the paper's, such as ``NDCG@10`` or ``Iters/sec``.
    """
    if name in (SPEED, SPEED_DIFFERENCE, OVERHEAD):
        seconds = group.seconds_per_step
        if not seconds > 0:
            raise MissingFigureError(NOT_RECORDED)
        if name == SPEED:
            return (1 / seconds,)
        plain = grid.matching_groups(replace(row, method="FT"))
        if len(plain) != 1 or not plain[0].seconds_per_step > 0:
            raise MissingFigureError(NO_BASELINE)
        ratio = seconds / plain[0].seconds_per_step
        return (100 * (1 / ratio - 1 if name == SPEED_DIFFERENCE else ratio - 1),)
    if name == "queries":
        return tuple(float(_queries_of(table, row.part).sum()) for table in group.query_tables)
    measure = our_measure(name)
    assert measure is not None
    if row.part in BUCKETS:
        return tuple(_third(measure, row.part, table) for table in group.query_tables)
    # of the models as trained: the paper knows no guard
    when = "before" if row.method == PRETRAINED else "fine_tuned"
    if any(measure not in run.measures[when] for run in group.runs):
        raise MissingFigureError(NOT_MEASURED)
    values = tuple(float(value) for value in group.values(measure, when))
    return values[:1] if when == "before" and len(set(values)) == 1 else values


def _third(measure: str, part: str, table: pa.Table) -> float:
    """A measure after training over the hard, medium or easy third of a run's test queries."""
    mask = _queries_of(table, part)
    for when in ("fine_tuned", "after"):
        if f"{when} {measure}" in table.column_names:
            return float(table[f"{when} {measure}"].to_numpy()[mask].mean())
    raise MissingFigureError(NOT_MEASURED)


def _queries_of(table: pa.Table, part: str) -> NDArray[np.bool_]:
    """Mark the test queries of a third, or all, bool ``[queries]``."""
    if part not in BUCKETS:
        return np.ones(table.num_rows, dtype=np.bool_)
    if "similarity" not in table.column_names:
        raise MissingFigureError(NOT_RECORDED)
    return np.asarray(tertiles(table["similarity"].to_numpy()) == BUCKETS.index(part))


def _average(stated: PaperRow, rows: Sequence[ComparedRow]) -> ComparedRow:
    """The paper's average or average rank of a method, with the grid's if it has all data sets."""
    methods = list(dict.fromkeys(row.row.method for row in rows))
    by_key = {(row.row.data, row.row.method): row.figures for row in rows}
    sets = list(dict.fromkeys(row.row.data for row in rows))
    if stated.data in (RANK_SEEN, RANK_UNSEEN):
        sets = [data for data in sets if (data in SEEN) == (stated.data == RANK_SEEN)]
    figures = paper_figures(stated)
    for name, figure in figures.items():
        means = [[by_key[data, method][name].mean for method in methods] for data in sets]
        values = np.array(means, dtype=np.float64)  # NaN where the grid has none
        if not np.isnan(values).any():
            averages = values.mean(axis=0) if stated.data == AVERAGE else mean_ranks(values)
            ours = float(averages[methods.index(stated.method)])
            figures[name] = replace(figure, ours=(ours,))
    return ComparedRow(stated, None, figures)
