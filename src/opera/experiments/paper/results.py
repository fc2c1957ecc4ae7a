"""A table of the paper beside the runs of a grid: what a reader must know of them, and the files of a reproduction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from opera.core.errors import RunFolderError
from opera.core.files import replace_file
from opera.core.terminal import json_text, place
from opera.data.catalogue import PAPER_SETS
from opera.experiments.analysis import Group, group_runs
from opera.experiments.paper.cells import title_in_table
from opera.experiments.paper.matching import data_key
from opera.experiments.paper.plan import ReproductionPlan
from opera.experiments.paper.rows import ComparedRow
from opera.experiments.paper.sets import count_notes
from opera.experiments.paper.side_by_side import align_table, as_records
from opera.experiments.paper.tables import SUMMARIES
from opera.experiments.report import report
from opera.runs.folder import Run
from opera.runs.grid_record import GRID_FILE, GridRecord

SMALL = (
    "Made with --scale small, to try the way from data to table: too few steps and too small a model to be compared "
    "with the paper's figures."
)


def grid_notes(folder: Path, groups: Sequence[Group], data: Collection[str]) -> list[str]:
    """Notes on a grid's runs: their preset, seeds and scale, and counts that differ from Table 8.

    Args:
        folder: the grid's folder.
        groups: its groups, with the data sets' names.
        data: only these data sets.

    Raises:
        RunFolderError: if ``grid.json`` is not as OPERA wrote it.
    """
    keys = {data_key(name) for name in data}
    shown = [group for group in groups if data_key(group.data) in keys]
    runs = [run for group in shown for run in group.runs]
    if not runs:
        return []
    presets = sorted({str(run.settings["preset"]) for run in runs if run.settings.get("preset")})
    seeds = len({run.settings["seed"] for run in runs})
    preset = f"preset {' and '.join(presets)}, " if presets else ""
    notes = [f"The grid's runs: {preset}{seeds} seed{'s' * (seeds > 1)}."]
    if (folder / GRID_FILE).is_file() and GridRecord.read(folder).scale is not None:
        notes.append(SMALL)
    first = {data_key(group.data): group.runs[0].record.data for group in reversed(shown)}
    for entry in PAPER_SETS.values():
        found = first.get(data_key(entry.title))
        if (
            found
            and found.counts
            and (differing := count_notes(entry, entry.differing_counts(found.counts, {})))
        ):
            notes += [*differing, *(f"{entry.name}: {note}" for note in found.notes)]
    return notes


@dataclass(frozen=True)
class Reproduced:
    """A table of the paper beside what is finished of its reproduction.

    Attributes:
        plan: what was planned.
        rows: the rows of the data sets taken, and the averages over them.
        models: names of the models that the runs started from.
        finished: how many cells are finished.
        notes: what a reader of the table must know besides.
    """

    plan: ReproductionPlan
    rows: Sequence[ComparedRow]
    models: Sequence[str]
    finished: int
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        shared = self.plan.shared
        return {
            "table": shared.table.name,
            "number": shared.table.number,
            "model": self.plan.model,
            "preset": shared.preset,
            "scale": shared.scale.name,
            "seeds": list(shared.seeds),
            "data": dict(self.plan.sources),
            "left_out": dict(self.plan.left_out),
            "cells": len(self.plan.cells),
            "finished": self.finished,
            "rows": as_records(shared.table, self.rows, with_grid=True),
        }


def collect_results(plan: ReproductionPlan) -> Reproduced:
    """Read the finished cells and set them beside the paper's figures.

    Raises:
        RunFolderError: if no cell is finished, or the run of one is damaged.
    """
    table, scale = plan.shared.table, plan.shared.scale
    finished = [cell for cell in plan.cells if cell.finished]
    if not finished:
        raise RunFolderError(
            f"--out {place(plan.out)}: no cell of table {table.name} is finished; the same command without "
            "--table-only runs them"
        )
    groups: list[Group] = []
    titles = {name: title_in_table(table, PAPER_SETS[name]) for name in plan.sources}
    for name, title in titles.items():
        runs = [Run.open(cell.folder) for cell in finished if cell.data_name == name]
        groups += [replace(group, data=title) for group in group_runs(runs)]
    rows = [
        row
        for row in align_table(table, groups, scaled=scale.steps if scale.small else None)
        if row.row.data in titles.values()
        or (
            len(titles) > 1
            and _is_summary(row)
            and any(figure.ours for figure in row.figures.values())
        )
    ]
    notes = grid_notes(plan.out, groups, titles.values())
    if len(finished) < len(plan.cells):
        notes.append(
            f"{len(finished)} of {len(plan.cells)} cells are finished; the others are missing here."
        )
    notes += [f"Left out: {name}: {reason}" for name, reason in plan.left_out.items()]
    return Reproduced(plan, rows, [Path(plan.model).name], len(finished), notes)


def _is_summary(row: ComparedRow) -> bool:
    """Whether a row is an average, over all data sets or some of them."""
    return row.row.data.partition(",")[0] in SUMMARIES


def write_results(reproduced: Reproduced, text: str) -> list[Path]:
    """Write ``TABLE.txt``, ``TABLE.json`` and ``report.html`` into the grid's folder; returns their paths."""
    out, name = reproduced.plan.out, reproduced.plan.shared.table.name
    contents = {
        out / f"{name}.txt": text,
        out / f"{name}.json": json_text(reproduced.as_dict()) + "\n",
    }
    for path, content in contents.items():
        replace_file(path, partial(Path.write_text, data=content, encoding="utf-8"))
    return [*contents, report(out)]
