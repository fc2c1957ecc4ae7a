"""Run a reproduction, and set what is finished of it beside the paper's figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from opera.core.errors import DataError, InputError, RunFolderError
from opera.core.files import replace_file
from opera.core.terminal import json_text, place
from opera.data import check_stays_out, load_data
from opera.data.catalogue import PAPER_SETS, CountDifference, PaperSet, find_set
from opera.data.irds_source import stored_at
from opera.data.names import PUBLISHED
from opera.experiments.analysis import Group
from opera.experiments.grid.compare import (
    check_grid_folder,
    opened_grid,
    prepare_cells,
    write_grid_file,
)
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.preview import Timing, time_grid
from opera.experiments.grid.run import Status, run_grid
from opera.experiments.paper.align import ComparedRow, align_rows, as_records, rows_of
from opera.experiments.paper.plan import (
    Reproduction,
    papers_model,
    recipe_note,
    set_of_row,
    trained_rows,
)
from opera.experiments.paper.tables import PRETRAINED, PaperRow
from opera.experiments.report import report
from opera.retrieval.locate import locate_model
from opera.runs.folder import Run

PAPER_RATE = 2.43
"""Steps per second of plain fine-tuning on FiQA with 8 A100s (Table 5)."""
SMALL = (
    "Made with --scale small, to try the way from data to table: too few steps and too small a "
    "model to be compared with the paper's figures."
)


def check_folder_and_model(plan: Reproduction) -> None:
    """Check the grid's folder and the model: nothing here reads data. Writes nothing."""
    check_grid_folder(plan.out, plan.record)
    for source in plan.sources.values():
        check_stays_out(plan.out, "--out", source, folder=True)
    locate_model(plan.model)


def preview(
    plan: Reproduction, cells: Sequence[Cell], jobs: int
) -> tuple[Status, dict[str, Timing], list[str]]:
    """Check what a run of cells would refuse and time steps, as far as data and model are here.

    Fetches and writes nothing; returns notes besides.
    """
    check_folder_and_model(plan)
    own = plan.sources.values()
    here = [c for c in cells if is_here(c.data) and (c.data in own or Path(c.data).is_dir())]
    notes = fetch_sets(plan.sources, {cell.data_name for cell in here})
    status = prepare_cells(here, jobs)
    timings = time_grid(status, plan.model) if isinstance(locate_model(plan.model), Path) else {}
    status = Status.scan(cells, jobs)
    if papers_model(plan.model) is not None:
        hours = sum(cell.steps or 0 for cell in status.waiting) / PAPER_RATE / 3600
        notes.append(
            f"On eight A100s, at the paper's {PAPER_RATE} steps per second of ft (Table 5): about "
            f"{hours:,.0f} hours, one cell after another, without mining and encoding."
        )
    return status, timings, [recipe_note(plan.model), *notes]


def run_reproduction(
    plan: Reproduction, status: Status, shard: str | None, together: bool, main: bool
) -> None:
    """Run the cells that are not finished; keeps the status.

    ``shard`` names the part of the cells these are, ``None`` for all. ``together`` says that
    several processes train each cell; ``main`` that this one writes and prints.
    """
    with opened_grid(plan.out, plan.record, shard) if main else nullcontext():
        if together:
            from opera.experiments.grid.cell import run_together

            run_together(status, plan.model)
        else:
            run_grid(status, plan.model)


def fetch_sets(sources: Mapping[str, str], only: Collection[str]) -> list[str]:
    """Load some data sets, fetching what is not here; return where counts differ from Table 8.

    DataError names every data set that cannot be had, and what to do.
    """
    missing: dict[str, str] = {}
    notes: list[str] = []
    for name in (name for name in sources if name in only):
        try:
            entry, loaded = PAPER_SETS[name], load_data(sources[name])
            notes += count_notes(entry, entry.differences(loaded))
        except InputError as error:
            missing[name] = " ".join(error.lines)
    if not missing:
        return notes
    advice = []
    if any(sources[name] == PAPER_SETS[name].source for name in missing):
        advice.append("--data NAME=FOLDER takes one that you have")
    if here := [name for name in sources if name not in missing]:
        advice.append(f"--data {','.join(here)} goes without")
    cannot = f"{len(missing)} of {len(sources)} data sets cannot be had; {', '.join(advice)}"
    reasons = [f"{name}: {reason}" for name, reason in missing.items()]
    raise DataError(*reasons, *([cannot] if advice else []))


def write_noisy_sets(plan: Reproduction, only: Collection[str]) -> None:
    """Write the folders with wrong pairs that the cells read, unless they are there."""
    from opera_paper.noise import WRONG_PAIRS, add_wrong_pairs, write_noisy

    for name in only if plan.table.noisy else ():
        folder, lowest = Path(plan.source_of_cells(name)), PAPER_SETS[name].relevant_grade
        if not (folder / WRONG_PAIRS).is_file():
            data = load_data(plan.sources[name])
            noisy = add_wrong_pairs(data, "grade", None, 0, grade=lowest - 1)
            write_grid_file(plan.out, plan.record)  # so that the folder is known as a grid's
            write_noisy(*noisy, folder)


def count_notes(entry: PaperSet, differences: Sequence[CountDifference]) -> list[str]:
    """A sentence on counts that differ from Table 8, with the reasons that are known."""
    found = []
    for count in differences:
        reason = f" ({count.reason})" if count.reason else ""
        found.append(f"{count.name} {count.found:,}, there {count.table:,}{reason}")
    return [f"{entry.name} has other counts than Table 8: {'; '.join(found)}."] if found else []


def is_here(source: str) -> bool:
    """Whether a data set is read without a network, or refused without one, as a missing path."""
    if source.startswith("paper:"):
        return stored_at(find_set(source.removeprefix("paper:")).splits) is not None
    return not source.startswith(PUBLISHED)


@dataclass(frozen=True)
class Reproduced:
    """A table of the paper beside what is finished of its reproduction.

    Attributes:
        plan: what was planned.
        rows: the rows of the data sets taken, and the averages over them.
        finished: how many cells are finished.
        notes: what a reader of the table must know besides.
    """

    plan: Reproduction
    rows: Sequence[ComparedRow]
    finished: int
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        plan = self.plan
        return {
            "table": plan.table.name,
            "number": plan.table.number,
            "model": plan.model,
            "preset": plan.preset,
            "scale": plan.scale,
            "seeds": list(plan.seeds),
            "data": dict(plan.sources),
            "left_out": dict(plan.left_out),
            "cells": len(plan.cells),
            "finished": self.finished,
            "rows": as_records(plan.table, self.rows, with_grid=True),
        }


def collect_results(plan: Reproduction) -> Reproduced:
    """Read the finished cells and set them beside the paper's figures.

    RunFolderError is raised if no cell is finished, if the grid has other settings, or if the run
    of a cell is damaged.
    """
    runs: dict[tuple[str, str, int | None], list[Run]] = {}
    for cell in plan.cells:
        if cell.finished:
            own = runs.setdefault((cell.data_name, cell.label, cell.steps), [])
            own.append(Run.open(cell.folder))
    if not runs:
        raise RunFolderError(
            f"--out {place(plan.out)}: no cell of table {plan.table.name} is finished; the same "
            "command without --table-only runs them"
        )
    check_grid_folder(plan.out, plan.record)
    groups: dict[tuple[str, str, int | None], Group] = {}
    for row, name, label, steps in plan.trained:
        if members := runs.get((name, label, steps)):
            key = (row.data, row.method, row.steps)
            groups[key] = Group(row.data, label, steps, tuple(members))

    def group_of(row: PaperRow) -> Group | None:
        if row.method != PRETRAINED:
            return groups.get((row.data, row.method, row.steps))
        on_data = [group for group in groups.values() if group.data == row.data]
        return max(on_data, key=lambda group: len(group.runs), default=None)

    taken = {row.data for row in trained_rows(plan.table) if set_of_row(row).name in plan.sources}
    rows = [
        compared
        for compared in align_rows(rows_of(plan.table), group_of)
        if compared.row.data in taken
        or (len(taken) > 1 and any(figure.ours for figure in compared.figures.values()))
    ]
    finished = sum(map(len, runs.values()))
    return Reproduced(plan, rows, finished, _notes(plan, runs, finished))


def _notes(
    plan: Reproduction, runs: Mapping[tuple[str, str, int | None], Sequence[Run]], finished: int
) -> list[str]:
    """Preset, seeds and scale, counts that differ from Table 8, and what is missing."""
    seeds = len({run.record.seed for own in runs.values() for run in own})
    notes = [f"The grid's runs: preset {plan.preset}, {seeds} seed{'s' * (seeds > 1)}."]
    if plan.small:
        notes.append(SMALL)
    first = {name: own[0].record.data for (name, *_), own in reversed([*runs.items()])}
    for name in plan.sources:
        if name in first and first[name].counts and not plan.table.noisy:
            entry = PAPER_SETS[name]
            if differing := count_notes(entry, entry.differing_counts(first[name].counts, {})):
                notes += [*differing, *(f"{name}: {note}" for note in first[name].notes)]
    if finished < len(plan.cells):
        some = f"{finished} of {len(plan.cells)}"
        notes.append(f"{some} cells are finished; the others are missing here.")
    return notes + [f"Left out: {name}: {reason}" for name, reason in plan.left_out.items()]


def write_results(reproduced: Reproduced, text: str) -> list[Path]:
    """Write ``TABLE.txt``, ``TABLE.json`` and ``report.html`` into the grid's folder."""
    out, name = reproduced.plan.out, reproduced.plan.table.name
    whole = json_text(reproduced.as_dict()) + "\n"
    contents = {out / f"{name}.txt": text, out / f"{name}.json": whole}
    for path, content in contents.items():
        replace_file(path, partial(Path.write_text, data=content, encoding="utf-8"))
    return [*contents, report(out)]
