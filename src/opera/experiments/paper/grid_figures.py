"""The grid's counterpart of each kind of figure: measures, thirds of the queries, query counts and speeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.experiments.analysis import BUCKETS, Group, tertiles
from opera.experiments.paper.matching import PRETRAINED, GridRuns, our_measure
from opera.experiments.paper.tables import PaperRow

NOT_MEASURED, NOT_RECORDED, NO_BASELINE = "not measured", "not recorded", "FT not run"
SPEED, SPEED_DIFFERENCE, OVERHEAD = "Iters/sec", "Speed Diff (%)", "Per-step overhead (%)"


class MissingFigureError(Exception):
    """The grid's runs lack a figure; the message says why."""


Figures = tuple[float, ...]
"""One figure per seed; a single one where seeds do not matter."""


def grid_figure(name: str, row: PaperRow, group: Group, grid: GridRuns, reading: str) -> Figures:
    """Compute the grid's counterpart of a figure.

    Args:
        name: the paper's name of the measure, such as ``NDCG@10`` or ``Iters/sec``.
        row: the paper's row.
        group: the runs that match it.
        grid: all runs.
        reading: the reading of the paper that the runs follow.

    Raises:
        MissingFigureError: if the runs lack it.
    """
    if name == SPEED:
        return (1 / _seconds_per_step(group),)
    if name in (SPEED_DIFFERENCE, OVERHEAD):
        ratio = _step_ratio(row, group, grid, reading)
        return (100 * (1 / ratio - 1 if name == SPEED_DIFFERENCE else ratio - 1),)
    if name == "queries":
        return tuple(float(_queries_of(table, row.part).sum()) for table in group.query_tables)
    measure = our_measure(name)
    assert measure is not None
    return _third(measure, row, group) if row.part in BUCKETS else _whole(measure, row, group)


def _whole(measure: str, row: PaperRow, group: Group) -> Figures:
    """A measure over all test queries, of the models as trained: the paper knows no guard. Pretrained: one if equal."""
    when = "before" if row.method == PRETRAINED else "fine_tuned"
    if any(measure not in run.measures[when] for run in group.runs):
        raise MissingFigureError(NOT_MEASURED)
    values = tuple(float(run.measures[when][measure]) for run in group.runs)
    return values[:1] if when == "before" and len(set(values)) == 1 else values


def _third(measure: str, row: PaperRow, group: Group) -> Figures:
    """A measure after training over the hard, medium or easy third of the test queries."""
    masks = [_queries_of(table, row.part) for table in group.query_tables]
    guarded = all(f"fine_tuned {measure}" in table.column_names for table in group.query_tables)
    column = f"{'fine_tuned' if guarded else 'after'} {measure}"
    if any(column not in table.column_names for table in group.query_tables):
        raise MissingFigureError(NOT_MEASURED)
    both = zip(group.query_tables, masks, strict=True)
    return tuple(float(table[column].to_numpy()[mask].mean()) for table, mask in both)


def _queries_of(table: pa.Table, part: str) -> NDArray[np.bool_]:
    """Mark the test queries of a third, or all, bool ``[queries]``."""
    if part not in BUCKETS:
        return np.ones(table.num_rows, dtype=np.bool_)
    if "similarity" not in table.column_names:
        raise MissingFigureError(NOT_RECORDED)
    return np.asarray(tertiles(table["similarity"].to_numpy()) == BUCKETS.index(part))


def _seconds_per_step(group: Group) -> float:
    if not group.seconds_per_step > 0:
        raise MissingFigureError(NOT_RECORDED)
    return group.seconds_per_step


def _step_ratio(row: PaperRow, group: Group, grid: GridRuns, reading: str) -> float:
    """Seconds per step divided by FT's."""
    seconds = _seconds_per_step(group)
    fine_tuning = grid.matching_groups(replace(row, method="FT"), None, reading)
    if len(fine_tuning) != 1 or not fine_tuning[0].seconds_per_step > 0:
        raise MissingFigureError(NO_BASELINE)
    return seconds / fine_tuning[0].seconds_per_step
