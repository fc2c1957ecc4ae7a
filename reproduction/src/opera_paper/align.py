"""Compare a table of the paper with the same figures of finished runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

import opera
from opera_paper.tables import (
    AVERAGE,
    PRETRAINED,
    RANK_SEEN,
    RANK_UNSEEN,
    RANKS,
    SEEN,
    SUMMARIES,
    PaperRow,
    PaperTable,
    data_key,
    our_measure,
    table_rows,
)

BUCKETS = ("hard", "medium", "easy")
"""Thirds of the test queries by similarity to their positives, ascending (Appendix D.6)."""
NOT_RUN, NOT_MEASURED, NOT_RECORDED = "not run", "not measured", "not recorded"
NO_BASELINE = "FT not run"
SPEED, SPEED_DIFFERENCE, OVERHEAD = "Iters/sec", "Speed Diff (%)", "Per-step overhead (%)"


@dataclass(frozen=True)
class Runs:
    """The finished runs of a row, one per seed, with their number of steps."""

    runs: tuple[opera.Run, ...]
    steps: int

    @property
    def seconds_per_step(self) -> float:
        """The median over steps, then over seeds."""
        return float(np.median([np.median(run.step_seconds()) for run in self.runs]))


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of the paper and our figures.

    Attributes:
        paper: the paper's figure; ``None`` if the paper does not state it.
        ours: our figures, one per seed; empty if there is none.
        missing: the reason for a missing figure of ours.
        scale: factor of the difference; 100 gives points of a measure.
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
        """Our mean minus the paper's figure, scaled."""
        if self.mean is None or self.paper is None:
            return None
        return self.scale * (self.mean - self.paper)


@dataclass(frozen=True)
class ComparedRow:
    """A row of the paper with its figures and ours.

    Attributes:
        row: the paper's row.
        steps: steps of our runs; ``None`` without runs, and for the base model.
        figures: the figures by the paper's names of the measures.
    """

    row: PaperRow
    steps: int | None
    figures: dict[str, ComparedFigure]


def rows_of(table: PaperTable, data: str | None = None) -> list[PaperRow]:
    """The rows of a table, or those of one data set; sorted by steps if the table states them."""
    rows = list(table_rows(table.name))
    if data is not None:
        known = {data_key(row.data): row.data for row in rows if row.data not in SUMMARIES}
        if data_key(data) not in known:
            names = f"(it has: {', '.join(known.values())})"
            raise opera.SettingError(f"--data {data}: table {table.name} has no such data set {names}")
        rows = [row for row in rows if row.data == known[data_key(data)]]
    sets = list(dict.fromkeys(row.data for row in rows))
    if table.by_steps:
        rows.sort(key=lambda row: (sets.index(row.data), row.steps or 0))
    return rows


def paper_alone(rows: Sequence[PaperRow]) -> list[ComparedRow]:
    """The rows without our figures. Ranks, speeds, percentages and counts are not scaled."""
    return [
        ComparedRow(
            row,
            None,
            {
                name: ComparedFigure(value, scale=100.0 if our_measure(name) and row.data not in RANKS else 1.0)
                for name, value in row.values.items()
            },
        )
        for row in rows
    ]


def align_rows(rows: Sequence[PaperRow], group_of: Callable[[PaperRow], Runs | None]) -> list[ComparedRow]:
    """Add the figures of our runs to the rows, and average over the data sets."""
    alone = paper_alone(rows)
    aligned = [_aligned(row, group_of) for row in alone if row.row.data not in SUMMARIES]
    return aligned + [_average(row, aligned) for row in alone if row.row.data in SUMMARIES]


def as_records(table: PaperTable, rows: Sequence[ComparedRow], with_grid: bool) -> list[dict[str, Any]]:
    """Flatten rows for JSON: one record per row and measure; ``with_grid`` adds our figures."""
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


def _aligned(alone: ComparedRow, group_of: Callable[[PaperRow], Runs | None]) -> ComparedRow:
    """Return a row with the figures of its runs."""
    row, group = alone.row, group_of(alone.row)
    if group is None:
        return alone
    ft, figures = group_of(replace(row, method="FT")), {}
    for name, figure in alone.figures.items():
        ours = our_figure(name, row, group, ft)
        change = {"missing": ours} if isinstance(ours, str) else {"ours": ours}
        figures[name] = replace(figure, **change)
    return ComparedRow(row, None if row.method == PRETRAINED else group.steps, figures)


def our_figure(name: str, row: PaperRow, group: Runs, ft: Runs | None) -> tuple[float, ...] | str:
    """Compute our counterpart of a figure: one value per seed, or one if seeds do not matter.

    ``name`` is the paper's name, such as ``NDCG@10`` or ``Iters/sec``. ``ft`` are the runs of FT.
    Returns the reason as a text if we have no counterpart.
    """
    if name in (SPEED, SPEED_DIFFERENCE, OVERHEAD):
        seconds = group.seconds_per_step
        if not seconds > 0:
            return NOT_RECORDED
        if name == SPEED:
            return (1 / seconds,)
        if ft is None or not ft.seconds_per_step > 0:
            return NO_BASELINE
        ratio = seconds / ft.seconds_per_step
        return (100 * (1 / ratio - 1 if name == SPEED_DIFFERENCE else ratio - 1),)
    measure = our_measure(name)
    # the paper has no guard, so use the fine-tuned weights
    model = "base" if row.method == PRETRAINED else "fine_tuned"
    if measure and row.part not in BUCKETS:
        if any(measure not in run.measures[model] for run in group.runs):
            return NOT_MEASURED
        values = tuple(run.measures[model][measure] for run in group.runs)
        return values[:1] if model == "base" and len(set(values)) == 1 else values
    values_by_run = []
    for table in (run.per_query() for run in group.runs):
        mask = np.ones(table.num_rows, dtype=np.bool_)
        if row.part in BUCKETS:
            if "similarity" not in table.column_names:
                return NOT_RECORDED
            mask = thirds(table["similarity"].to_numpy()) == BUCKETS.index(row.part)
        columns = [f"{model} {measure}" for model in ("fine_tuned", "final")]
        column = next((name for name in columns if name in table.column_names), None)
        if measure and column is None:
            return NOT_MEASURED
        values_by_run.append(float(table[column].to_numpy()[mask].mean() if measure else mask.sum()))
    return tuple(values_by_run)


def _average(stated: ComparedRow, rows: Sequence[ComparedRow]) -> ComparedRow:
    """The paper's average or average rank of a method, with ours if no data set is missing."""
    methods = list(dict.fromkeys(row.row.method for row in rows))
    by_key = {(row.row.data, row.row.method): row.figures for row in rows}
    sets, kind = list(dict.fromkeys(row.row.data for row in rows)), stated.row.data
    if kind in (RANK_SEEN, RANK_UNSEEN):
        sets = [data for data in sets if (data in SEEN) == (kind == RANK_SEEN)]
    figures = dict(stated.figures)
    for name, figure in figures.items():
        means = [[by_key[data, method][name].mean for method in methods] for data in sets]
        values = np.array(means, dtype=np.float64)  # None becomes NaN
        if not np.isnan(values).any():
            ranks = rankdata(-values, axis=1)
            averages = (values if kind == AVERAGE else ranks).mean(axis=0)
            ours = float(averages[methods.index(stated.row.method)])
            figures[name] = replace(figure, ours=(ours,))
    return replace(stated, figures=figures)


def thirds(similarity: NDArray[np.float32]) -> NDArray[np.int64]:
    """Split queries ``[n]`` into thirds by similarity: int64 ``[n]``, indices of :data:`BUCKETS`."""
    rank = np.argsort(np.argsort(similarity, kind="stable"), kind="stable")
    return np.asarray(len(BUCKETS) * rank // len(similarity), dtype=np.int64)
