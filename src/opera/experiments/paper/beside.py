"""The paper's figures beside those of a grid of runs, on the same measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import SettingError, nearest
from opera.experiments.analysis import BUCKETS, Group, mean_ranks, tertiles
from opera.experiments.paper.matching import PRETRAINED, Grid, data_key, our_measure
from opera.experiments.paper.tables import (
    AVERAGE,
    RANK,
    RANK_SEEN,
    RANK_UNSEEN,
    SEEN,
    SUMMARIES,
    PaperRow,
    PaperTable,
    rows_of,
)
from opera.runs.folder import Run

NOT_RUN, NOT_MEASURED, NOT_RECORDED = "not run", "not measured", "not recorded"
SPEED, SPEED_DIFFERENCE, OVERHEAD, QUERIES = "Iters/sec", "Speed Diff (%)", "Per-step overhead (%)", "queries"


@dataclass(frozen=True)
class Cell:
    """One figure of the paper and what a grid has for it.

    Attributes:
        paper: the paper's figure; ``None`` where it does not tell.
        ours: the grid's, one a seed; empty where it has none.
        absent: why it has none.
        scale: what a difference is multiplied by: 100 makes points of a measure.
    """

    paper: float | None
    ours: tuple[float, ...] = ()
    absent: str = NOT_RUN
    scale: float = 100.0

    @property
    def mean(self) -> float | None:
        """Over the seeds."""
        return float(np.mean(self.ours)) if self.ours else None

    @property
    def sd(self) -> float | None:
        """Over the seeds, of a sample; ``None`` for fewer than two."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """The grid's mean less the paper's figure, scaled."""
        return None if self.mean is None or self.paper is None else self.scale * (self.mean - self.paper)


@dataclass(frozen=True)
class Line:
    """A row of the paper with the cells of each measure.

    Attributes:
        row: the paper's; without values for a number of steps that only the grid has.
        steps: how many steps the grid's runs took; ``None`` where it has none, and for the pretrained model.
        cells: by the paper's name of each measure.
        fits: what the grid calls the runs that answer the row, where several kinds do and none was taken.
    """

    row: PaperRow
    steps: int | None
    cells: dict[str, Cell]
    fits: tuple[str, ...] = ()


def compare(
    table: PaperTable, groups: Iterable[Group] | None, data: str | None = None, steps: int | None = None
) -> list[Line]:
    """Set a table of the paper beside a grid.

    Args:
        table: the table.
        groups: the grid's; ``None`` for the paper's figures alone.
        data: this data set alone; averages are left out.
        steps: only runs of so many steps; ``None`` for the most that the grid has on each data set. A table by
            iterations has all of them, each beside the paper's figure at just as many, on the grid's data sets.

    Returns:
        A line a row, in the paper's order; then averages over the data sets that the grid has, where those are not all.

    Raises:
        SettingError: if the table does not have the data set.
    """
    rows = [row for row in rows_of(table.name) if row.data not in SUMMARIES]
    sets = list(dict.fromkeys(row.data for row in rows))
    if data is not None:
        sets = [_named(data, sets, table)]
        rows = [row for row in rows if row.data in sets]
    grid = None if groups is None else Grid(groups, table, steps)
    if grid is not None and table.by_steps:
        sets = [name for name in sets if grid.has(name)] or sets
        rows = [row for row in rows if row.data in sets]
        rows = [row for row in rows if steps is None or row.steps in (0, steps)] + _rows_between(grid, rows)
    if table.by_steps:
        rows.sort(key=lambda row: (sets.index(row.data), row.steps or 0))
    lines = [_line(row, grid) for row in rows]
    if data is not None:
        return lines
    stated = [row for row in rows_of(table.name) if row.data in SUMMARIES]
    return lines + (_summaries(stated, lines) if grid else [Line(row, None, _scaled(row)) for row in stated])


def as_records(table: PaperTable, lines: Sequence[Line], compared: bool) -> list[dict[str, Any]]:
    """Flatten lines for JSON: a record a row and measure, with the grid's side where it was ``compared``."""
    records = []
    for line in lines:
        row = line.row
        for name, cell in line.cells.items():
            record = {
                "table": table.name, "data": row.data, "part": row.part or None, "method": row.method,
                "steps": row.steps, "measure": name, "paper": cell.paper,
            }  # fmt: skip
            if compared:
                record |= {
                    "our_measure": our_measure(name),
                    "grid": "run" if cell.ours else cell.absent,
                    "grid_steps": line.steps,
                    "seeds": len(cell.ours),
                    "mean": cell.mean,
                    "sd": cell.sd,
                    "difference": cell.difference,
                }
            records.append(record)
    return records


def _named(data: str, sets: Sequence[str], table: PaperTable) -> str:
    for name in sets:
        if data_key(name) == data_key(data):
            return name
    close = {name.lower(): name for name in sets}
    likely = nearest(data.lower(), close)
    for lower, name in close.items():
        likely = likely.replace(f"'{lower}'", f"'{name}'")
    raise SettingError(f"--data {data}: table {table.name} has no such data set{likely} (it has: {', '.join(sets)})")


def _rows_between(grid: Grid, rows: Sequence[PaperRow]) -> list[PaperRow]:
    """Rows for the numbers of steps that the grid has and the paper has not, without the paper's figures."""
    known = {(row.data, row.method, row.steps) for row in rows}
    alike = {(row.data, row.method): row for row in rows if row.method != PRETRAINED}
    new = [
        replace(row, steps=count, values=dict.fromkeys(row.values))
        for (data, method), row in alike.items()
        for count in grid.step_counts(data)
        if (data, method, count) not in known
    ]
    return [row for row in new if grid.find(row, row.steps)]


def _scaled(row: PaperRow) -> dict[str, Cell]:
    return {name: Cell(value, scale=_scale(row.data, name)) for name, value in row.values.items()}


def _scale(data: str, measure: str) -> float:
    """Points for measures; ranks, speeds, percentages and counts stay as they are."""
    return 100.0 if our_measure(measure) and data.partition(",")[0] not in (RANK, RANK_SEEN, RANK_UNSEEN) else 1.0


def _line(row: PaperRow, grid: Grid | None) -> Line:
    if grid is None:
        return Line(row, None, _scaled(row))
    found = grid.find(row, row.steps if grid.table.by_steps else None)
    if len(found) > 1:
        why = f"{len(found)} kinds fit"
        cells = {name: replace(cell, absent=why) for name, cell in _scaled(row).items()}
        return Line(row, found[0].steps, cells, tuple(group.method for group in found))
    if not found:
        return Line(row, None, _scaled(row))
    group = found[0]
    cells = {}
    for name, cell in _scaled(row).items():
        if our_measure(name) is None:
            ours, absent = _own_figure(name, row, group, grid)
        else:
            ours, absent = _measured(str(our_measure(name)), row, group)
        cells[name] = replace(cell, ours=ours, absent=absent)
    return Line(row, None if row.method == PRETRAINED else group.steps, cells)


def _measured(name: str, row: PaperRow, group: Group) -> tuple[tuple[float, ...], str]:
    """A measure of the runs, one a seed; where there is none, why."""
    if row.part in BUCKETS:
        parts = [_part(run, row.part) for run in group.runs]
        if any(part is None for part in parts):
            return (), NOT_RECORDED
        column = f"after {name}"
        tables = [run.per_query() for run in group.runs]
        if any(column not in table.column_names for table in tables):
            return (), NOT_MEASURED
        pairs = zip(tables, parts, strict=True)
        return tuple(float(table[column].to_numpy()[part].mean()) for table, part in pairs), NOT_RUN
    when = "before" if row.method == PRETRAINED else "after"
    if any(name not in run.measures[when] for run in group.runs):
        return (), NOT_MEASURED
    values = tuple(float(run.measures[when][name]) for run in group.runs)
    return (values[:1] if when == "before" and len(set(values)) == 1 else values), NOT_RUN


def _part(run: Run, part: str) -> NDArray[np.bool_] | None:
    """Mark the test queries of a third, as bool ``[queries]``; ``None`` for a run that did not keep similarities."""
    table = run.per_query()
    if "similarity" not in table.column_names:
        return None
    return np.asarray(tertiles(table["similarity"].to_numpy()) == BUCKETS.index(part))


def _own_figure(name: str, row: PaperRow, group: Group, grid: Grid) -> tuple[tuple[float, ...], str]:
    """What is no measure of rankings: speeds, and numbers of queries."""
    if name == QUERIES:
        if row.part not in BUCKETS:
            return tuple(float(run.per_query().num_rows) for run in group.runs), NOT_RUN
        parts = [_part(run, row.part) for run in group.runs]
        counts = tuple(float(part.sum()) for part in parts if part is not None)
        return (counts, NOT_RUN) if len(counts) == len(parts) else ((), NOT_RECORDED)
    seconds = group.seconds_a_step
    if not seconds > 0:
        return (), NOT_RECORDED
    if name == SPEED:
        return (1 / seconds,), NOT_RUN
    plain = grid.find(replace(row, method="FT"))
    if len(plain) != 1 or not plain[0].seconds_a_step > 0:
        return (), "FT not run"
    ratio = seconds / plain[0].seconds_a_step
    return (100 * (1 / ratio - 1) if name == SPEED_DIFFERENCE else 100 * (ratio - 1),), NOT_RUN


def _summaries(stated: Sequence[PaperRow], lines: Sequence[Line]) -> list[Line]:
    """The paper's averages and average ranks, beside the grid's where it has all their data sets.

    Where it has some of them, a line follows with both sides over those; the paper's from its own figures.
    """
    result = []
    methods = list(dict.fromkeys(line.row.method for line in lines))
    by_place = {(line.row.data, line.row.method): line for line in lines}
    sets = list(dict.fromkeys(line.row.data for line in lines))
    for kind in dict.fromkeys(row.data for row in stated):
        rows = {row.method: row for row in stated if row.data == kind}
        own = [data for data in sets if kind in (AVERAGE, RANK) or (data in SEEN) == (kind == RANK_SEEN)]
        cells: dict[str, dict[str, Cell]] = {method: _scaled(rows[method]) for method in methods}
        partial: dict[str, dict[str, dict[str, Cell]]] = {}
        for measure in next(iter(rows.values())).values:
            block = [[by_place[data, method].cells[measure] for method in methods] for data in own]
            complete = [(data, row) for data, row in zip(own, block, strict=True) if all(cell.ours for cell in row)]
            if not complete:
                continue
            ours = _summary(kind, [[cell.mean for cell in row] for _, row in complete])
            if len(complete) == len(own):
                for method, value in zip(methods, ours, strict=True):
                    cells[method][measure] = replace(cells[method][measure], ours=(float(value),))
                continue
            paper = _summary(kind, [[cell.paper for cell in row] for _, row in complete])
            over = f"{kind}, over {' and '.join(data for data, _ in complete)}"
            of_method = partial.setdefault(over, {method: {} for method in methods})
            for method, theirs, value in zip(methods, paper, ours, strict=True):
                of_method[method][measure] = Cell(float(theirs), (float(value),), scale=_scale(kind, measure))
        result += [Line(rows[method], None, cells[method]) for method in methods]
        for over, found in partial.items():
            result += [Line(replace(rows[method], data=over), None, found[method]) for method in methods]
    return result


def _summary(kind: str, values: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """Average over data sets, or the average rank: ``[data sets, methods]`` to ``[methods]``."""
    block = np.asarray(values, dtype=np.float64)
    return np.asarray(block.mean(axis=0) if kind == AVERAGE else mean_ranks(block), dtype=np.float64)
