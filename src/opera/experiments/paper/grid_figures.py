"""The grid's counterpart of each kind of figure: measures, thirds of the queries, query counts and speeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.experiments.analysis import BUCKETS, Group, tertiles
from opera.experiments.paper.matching import PRETRAINED, GridRuns, our_measure
from opera.experiments.paper.tables import PaperRow

NOT_MEASURED, NOT_RECORDED, NO_BASELINE = "not measured", "not recorded", "FT not run"


class MissingFigureError(Exception):
    """The grid's runs lack a figure; the message says why."""


@dataclass(frozen=True)
class FigureSource:
    """What a figure is computed from.

    Attributes:
        name: the paper's name of the measure.
        row: the paper's row.
        group: the runs that match it.
        grid: all runs.
        reading: the reading of the paper that the runs follow; ``None`` for any.
    """

    name: str
    row: PaperRow
    group: Group
    grid: GridRuns
    reading: str | None = None

    @property
    def measure(self) -> str:
        """OPERA's name of the measure."""
        name = our_measure(self.name)
        assert name is not None
        return name


Figures = tuple[float, ...]
"""One figure per seed; a single one where seeds do not matter."""


def grid_figure(name: str, row: PaperRow, group: Group, grid: GridRuns, reading: str | None = None) -> Figures:
    """Compute the grid's counterpart of a figure.

    Args:
        name: the paper's name of the measure, such as ``NDCG@10`` or ``Iters/sec``.
        row: the paper's row.
        group: the runs that match it.
        grid: all runs.
        reading: the reading of the paper that the runs follow; ``None`` for any.

    Raises:
        MissingFigureError: if the runs lack it.
    """
    source = FigureSource(name, row, group, grid, reading)
    if name in FIGURES:
        return FIGURES[name](source)
    if row.part in BUCKETS:
        return third_measure(source)
    return pretrained_measure(source) if row.method == PRETRAINED else trained_measure(source)


def trained_measure(source: FigureSource) -> Figures:
    """A measure of rankings over all test queries, of the models as trained: the paper knows no guard."""
    return _recorded_measure(source, "fine_tuned")


def pretrained_measure(source: FigureSource) -> Figures:
    """A measure of the pretrained model: a single figure if all seeds agree."""
    values = _recorded_measure(source, "before")
    return values[:1] if len(set(values)) == 1 else values


def third_measure(source: FigureSource) -> Figures:
    """A measure after training over the hard, medium or easy third of the test queries."""
    masks = [_third_mask(table, source.row.part) for table in source.group.query_tables]
    tables = source.group.query_tables
    guarded = all(f"fine_tuned {source.measure}" in table.column_names for table in tables)
    column = f"{'fine_tuned' if guarded else 'after'} {source.measure}"
    if any(column not in table.column_names for table in tables):
        raise MissingFigureError(NOT_MEASURED)
    return tuple(float(table[column].to_numpy()[mask].mean()) for table, mask in zip(tables, masks, strict=True))


def query_count(source: FigureSource) -> Figures:
    """The number of test queries, all or in a third."""
    if source.row.part in BUCKETS:
        return tuple(float(_third_mask(table, source.row.part).sum()) for table in source.group.query_tables)
    return tuple(float(table.num_rows) for table in source.group.query_tables)


def steps_per_second(source: FigureSource) -> Figures:
    """Training steps per second."""
    return (1 / _seconds_per_step(source.group),)


def speed_difference(source: FigureSource) -> Figures:
    """Steps per second relative to FT's, minus one, in percent."""
    return (100 * (1 / _step_ratio(source) - 1),)


def step_overhead(source: FigureSource) -> Figures:
    """Seconds per step relative to FT's, minus one, in percent."""
    return (100 * (_step_ratio(source) - 1),)


FIGURES: dict[str, Callable[[FigureSource], Figures]] = {
    "queries": query_count,
    "Iters/sec": steps_per_second,
    "Speed Diff (%)": speed_difference,
    "Per-step overhead (%)": step_overhead,
}
"""Figures that are not measures of rankings, by the paper's name."""


def _recorded_measure(source: FigureSource, when: str) -> Figures:
    runs = source.group.runs
    if any(source.measure not in run.measures[when] for run in runs):
        raise MissingFigureError(NOT_MEASURED)
    return tuple(float(run.measures[when][source.measure]) for run in runs)


def _third_mask(table: pa.Table, part: str) -> NDArray[np.bool_]:
    """Mark the test queries of a third, bool ``[queries]``."""

    if "similarity" not in table.column_names:
        raise MissingFigureError(NOT_RECORDED)
    return np.asarray(tertiles(table["similarity"].to_numpy()) == BUCKETS.index(part))


def _seconds_per_step(group: Group) -> float:
    if not group.seconds_per_step > 0:
        raise MissingFigureError(NOT_RECORDED)
    return group.seconds_per_step


def _step_ratio(source: FigureSource) -> float:
    """Seconds per step divided by FT's."""
    seconds = _seconds_per_step(source.group)
    fine_tuning = source.grid.matching_groups(replace(source.row, method="FT"), reading=source.reading)
    if len(fine_tuning) != 1 or not fine_tuning[0].seconds_per_step > 0:
        raise MissingFigureError(NO_BASELINE)
    return seconds / fine_tuning[0].seconds_per_step
