"""A table of the paper side by side with the same figures of finished runs."""

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
"""Thirds of the test queries by their similarity to their positives, ascending (Appendix D.6)."""
WARM_UP = 5
"""Steps left out of timings."""
NOT_RUN, NOT_MEASURED, NOT_RECORDED = "not run", "not measured", "not recorded"
NO_BASELINE = "FT not run"
SPEED, SPEED_DIFFERENCE, OVERHEAD = "Iters/sec", "Speed Diff (%)", "Per-step overhead (%)"


@dataclass(frozen=True)
class Runs:
    """The finished runs of a row, by seed, and their number of steps."""

    runs: tuple[opera.Run, ...]
    steps: int

    @property
    def seconds_per_step(self) -> float:
        """Median over steps, then over seeds."""
        seconds = [run.trace()["seconds"].to_numpy() for run in self.runs]
        warm = [part[WARM_UP:] if len(part) > 2 * WARM_UP else part for part in seconds]
        return float(np.median([np.median(part) for part in warm]))


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of the paper and ours.

    Attributes:
        paper: the paper's figure; ``None`` if it does not state one.
        ours: one per seed; empty if there is none.
        missing: why there is none.
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
        """Our mean minus the paper's figure, scaled."""
        if self.mean is None or self.paper is None:
            return None
        return self.scale * (self.mean - self.paper)


@dataclass(frozen=True)
class ComparedRow:
    """A row of the paper with its figures and ours.

    Attributes:
        row: the paper's row.
        steps: steps of our runs; ``None`` if there are none, and for the base model.
        figures: by the paper's name of each measure.
    """

    row: PaperRow
    steps: int | None
    figures: dict[str, ComparedFigure]


def rows_of(table: PaperTable, data: str | None = None) -> list[PaperRow]:
    """The rows of a table, or those of one data set; by steps where the table states them."""
    rows = list(table_rows(table.name))
    if data is not None:
        known = {data_key(row.data): row.data for row in rows if row.data not in SUMMARIES}
        if data_key(data) not in known:
            has = f"(it has: {', '.join(known.values())})"
            raise opera.SettingError(f"--data {data}: table {table.name} has no such data set {has}")
        rows = [row for row in rows if row.data == known[data_key(data)]]
    sets = list(dict.fromkeys(row.data for row in rows))
    if table.by_steps:
        rows.sort(key=lambda row: (sets.index(row.data), row.steps or 0))
    return rows


def paper_alone(rows: Sequence[PaperRow]) -> list[ComparedRow]:
    """The rows without ours; ranks, speeds, percentages and counts are not scaled."""
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
    """Set rows side by side with the runs of each; averages are over those that have runs."""
    alone = paper_alone(rows)
    aligned = [_aligned(row, group_of) for row in alone if row.row.data not in SUMMARIES]
    return aligned + [_average(row, aligned) for row in alone if row.row.data in SUMMARIES]


def as_records(table: PaperTable, rows: Sequence[ComparedRow], with_grid: bool) -> list[dict[str, Any]]:
    """Flatten rows for JSON: a record per row and measure, with our side if there is one."""
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
    plain, figures = group_of(replace(row, method="FT")), {}
    for name, figure in alone.figures.items():
        ours = our_figure(name, row, group, plain)
        change = {"missing": ours} if isinstance(ours, str) else {"ours": ours}
        figures[name] = replace(figure, **change)
    return ComparedRow(row, None if row.method == PRETRAINED else group.steps, figures)


def our_figure(name: str, row: PaperRow, group: Runs, plain: Runs | None) -> tuple[float, ...] | str:
    """Compute our counterpart of a figure, one per seed, or one where seeds do not matter.

    ``name`` is the paper's, such as ``NDCG@10`` or ``Iters/sec``; ``plain`` are the runs of FT.
    Returns the reason if there is no counterpart.
    """
    if name in (SPEED, SPEED_DIFFERENCE, OVERHEAD):
        seconds = group.seconds_per_step
        if not seconds > 0:
            return NOT_RECORDED
        if name == SPEED:
            return (1 / seconds,)
        if plain is None or not plain.seconds_per_step > 0:
            return NO_BASELINE
        ratio = seconds / plain.seconds_per_step
        return (100 * (1 / ratio - 1 if name == SPEED_DIFFERENCE else ratio - 1),)
    measure = our_measure(name)
    # of the models as trained: the paper knows no guard
    when = "base" if row.method == PRETRAINED else "fine_tuned"
    if measure and row.part not in BUCKETS:
        if any(measure not in run.measures[when] for run in group.runs):
            return NOT_MEASURED
        values = tuple(run.measures[when][measure] for run in group.runs)
        return values[:1] if when == "base" and len(set(values)) == 1 else values
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
    """The paper's average or average rank of a method, with ours if all its data sets have it."""
    methods = list(dict.fromkeys(row.row.method for row in rows))
    by_key = {(row.row.data, row.row.method): row.figures for row in rows}
    sets, kind = list(dict.fromkeys(row.row.data for row in rows)), stated.row.data
    if kind in (RANK_SEEN, RANK_UNSEEN):
        sets = [data for data in sets if (data in SEEN) == (kind == RANK_SEEN)]
    figures = dict(stated.figures)
    for name, figure in figures.items():
        means = [[by_key[data, method][name].mean for method in methods] for data in sets]
        values = np.array(means, dtype=np.float64)  # NaN where there is none
        if not np.isnan(values).any():
            ranks = rankdata(-values, axis=1)
            averages = (values if kind == AVERAGE else ranks).mean(axis=0)
            ours = float(averages[methods.index(stated.row.method)])
            figures[name] = replace(figure, ours=(ours,))
    return replace(stated, figures=figures)


def thirds(similarity: NDArray[np.float32]) -> NDArray[np.int64]:
    """Split queries ``[n]`` into thirds by similarity: int64 ``[n]``, by :data:`BUCKETS`."""
    rank = np.argsort(np.argsort(similarity, kind="stable"), kind="stable")
    return np.asarray(len(BUCKETS) * rank // len(similarity), dtype=np.int64)
