"""The table of the paper with the finished cells of a reproduction beside it, and the files it is written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from opera.core.errors import RunFolderError
from opera.core.files import replace_file
from opera.core.terminal import json_text, place
from opera.data.catalogue import PAPER_SETS
from opera.experiments.analysis import Group, group_runs
from opera.experiments.paper import ComparedRow, align_table, as_records
from opera.experiments.paper.tables import SUMMARIES
from opera.experiments.report import report
from opera.experiments.reproduce.cells import title_in_table
from opera.experiments.reproduce.notes import SMALL, run_count_notes
from opera.experiments.reproduce.plan import ReproductionPlan
from opera.runs.folder import Run


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
    counts: list[str] = []
    for name in plan.sources:
        runs = [Run.open(cell.folder) for cell in finished if cell.data_name == name]
        if runs:
            counts += run_count_notes(PAPER_SETS[name], runs[0])
        groups += [replace(group, data=title_in_table(table, PAPER_SETS[name])) for group in group_runs(runs)]
    titles = {title_in_table(table, PAPER_SETS[name]) for name in plan.sources}
    rows = [
        row
        for row in align_table(table, groups, scaled=scale.steps if scale.small else None)
        if row.row.data in titles
        or (len(titles) > 1 and _is_summary(row) and any(figure.ours for figure in row.figures.values()))
    ]
    return Reproduced(plan, rows, [Path(plan.model).name], len(finished), _notes(plan, len(finished), counts))


def _is_summary(row: ComparedRow) -> bool:
    """Whether a row is an average, over all data sets or some of them."""
    return row.row.data.partition(",")[0] in SUMMARIES


def _notes(plan: ReproductionPlan, finished: int, counts: Sequence[str]) -> list[str]:
    shared = plan.shared
    notes = [f"Settings: --preset {shared.preset}, {len(shared.seeds)} seed{'s' * (len(shared.seeds) > 1)}."]
    if shared.scale.small:
        notes.append(SMALL)
    if finished < len(plan.cells):
        notes.append(f"{finished} of {len(plan.cells)} cells are finished; the others are missing here.")
    return [*notes, *counts] + [f"Left out: {name}: {reason}" for name, reason in plan.left_out.items()]


def write_results(reproduced: Reproduced, text: str) -> list[Path]:
    """Write ``TABLE.txt``, ``TABLE.json`` and ``report.html`` into the grid's folder; returns their paths."""
    out, name = reproduced.plan.out, reproduced.plan.shared.table.name
    contents = {out / f"{name}.txt": text, out / f"{name}.json": json_text(reproduced.as_dict()) + "\n"}
    for path, content in contents.items():
        replace_file(path, partial(Path.write_text, data=content, encoding="utf-8"))
    return [*contents, report(out)]
