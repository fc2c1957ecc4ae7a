"""``opera reproduce``: a table of the paper, from data to our figures beside its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import (
    JsonOption,
    SetOption,
    collect_values,
    end_if_failed,
    how_to_continue,
    interruptible,
    is_main_process,
    listed,
    numbers,
    path_option,
    several_processes,
    source_option,
)
from opera.core.arguments import whole_number
from opera.core.errors import SettingError
from opera.core.terminal import json_text, place, say

if TYPE_CHECKING:
    from opera.experiments.grid.plan import Cell
    from opera.experiments.grid.run import Status
    from opera.experiments.paper.plan import Reproduction


def reproduce(
    table: Annotated[
        str, typer.Argument(help="a table of opera paper, such as main", metavar="TABLE")
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="only these of its data sets: fiqa,antique, or fiqa=FOLDER for one that you "
            "have; repeatable",
            metavar="NAME[=SOURCE]",
        ),
    ] = None,
    model: Annotated[
        str | None, source_option("--model", "the model in place of the table's")
    ] = None,
    out: Annotated[
        Path | None,
        path_option(
            "--out", "folder of the grid, the table and the report; default reproduce-TABLE"
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="only these of its methods, comma-separated: ft,dp"),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="comma-separated; default 0,1,2, or 0 if small")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="settings of the paper's text, or of its release")
    ] = "paper",
    scale: Annotated[
        str,
        typer.Option("--scale", help="full, or small: the same way with minilm and a few steps"),
    ] = "full",
    shard: Annotated[
        str | None,
        typer.Option("--shard", help="run part K of N alone, such as 3/32; all parts share --out"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many cells to run at once")] = 1,
    set_: SetOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="print the cells and estimated times, then exit")
    ] = False,
    table_only: Annotated[
        bool,
        typer.Option(
            "--table-only", help="run nothing; make table and report of the cells that are finished"
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Run what a table of the paper takes, and set our figures beside the paper's.

    Finished cells are not repeated.
    """
    from opera.experiments.grid.compare import MOST_JOBS
    from opera.experiments.grid.plan import canonical_label
    from opera.experiments.paper.plan import (
        Reproduction,
        cells_of_shard,
        find_scale,
        parse_shard,
    )
    from opera.experiments.paper.tables import find_table

    jobs = whole_number(jobs, "--jobs", 1, MOST_JOBS)
    found, size = find_table(table, "TABLE"), find_scale(scale)
    part = None if shard is None else parse_shard(shard)
    if part is not None and table_only:
        raise SettingError(
            "--shard runs a part of the cells and --table-only none: give one of them"
        )
    planned = Reproduction(
        table=found,
        out=out or Path(f"reproduce-{found.name}{'' if size == 'full' else f'-{size}'}"),
        scale=size,
        given_model=model,
        preset=preset,
        methods=None if methods is None else tuple(map(canonical_label, listed(methods))),
        given_seeds=None if seeds is None else tuple(numbers("seeds", seeds)),
        settings=collect_values(None, set_, {}),
        data=data,
    )
    cells = planned.cells if part is None else cells_of_shard(planned.cells, *part)
    if plan:
        _print_plan(planned, cells, jobs, json_)
    elif table_only:
        _finish(planned, json_)
    else:
        _run(planned, cells, part, jobs, json_)


def _print_plan(planned: Reproduction, cells: Sequence[Cell], jobs: int, as_json: bool) -> None:
    from opera.cli.printing.plan import print_plan
    from opera.experiments.paper.reproduce import preview

    with interruptible(lambda: "nothing was written"):
        status, timings, notes = preview(planned, cells, jobs)
    notes += _left_out(planned)
    about = {"table": planned.table.name, "model": planned.model, "notes": notes}
    notes = ["opera data lists what each data set takes on disk", *notes]
    print_plan(status, timings, as_json, about, notes)


def _run(
    planned: Reproduction,
    cells: Sequence[Cell],
    part: tuple[int, int] | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Fetch the data, run the cells, and make the table unless this is a shard."""
    from opera.experiments.grid.compare import prepare_cells
    from opera.experiments.paper.reproduce import check_folder_and_model, run_reproduction

    check_folder_and_model(planned)
    with interruptible(lambda: "no cell was begun; the same command continues"):
        notes = _fetched(planned, cells)
        status = prepare_cells(cells, jobs)
    if is_main_process():
        _announce(planned, notes, status, part)
    name = None if part is None else f"{part[0]}-of-{part[1]}"
    with interruptible(lambda: how_to_continue(status)):
        run_reproduction(planned, status, name, several_processes(), is_main_process())
    if not is_main_process():
        return
    if part is not None:
        done, count = sum(cell.finished for cell in planned.cells), len(planned.cells)
        advice = "once all are, the same command without --shard makes the table and the report"
        words = f"{done} of all {count} cells are done; {advice}"
        say(json_text({"cells": count, "finished": done}) if as_json else words)
    elif status.done:
        _finish(planned, as_json)
    end_if_failed(status)


def _fetched(planned: Reproduction, cells: Sequence[Cell]) -> list[str]:
    """Fetch and load the data sets of the cells; under torchrun the main process goes first."""
    from opera.experiments.paper.reproduce import fetch_sets

    names = {cell.data_name for cell in cells}
    if not several_processes():
        return fetch_sets(planned.sources, names)
    from opera.retrieval.device import join_processes

    with join_processes().main_process_first():
        return fetch_sets(planned.sources, names)


def _announce(
    planned: Reproduction, notes: Sequence[str], status: Status, part: tuple[int, int] | None
) -> None:
    """Say which cells this call runs, and by which recipe of the model, on standard error."""
    from opera.experiments.paper.plan import recipe_note

    lines = [f"note: {n}" for n in (recipe_note(planned.model), *notes, *_left_out(planned))]
    if part is not None:
        number, count = part
        lines.append(f"shard {number}/{count}: {len(status.cells)} of {len(planned.cells)} cells")
        for cell in status.cells:
            lines.append(f"  {cell.title}{': done' if cell.folder in status.done else ''}")
    if not status.cells:
        lines.append("there is no cell to run")
    elif not status.waiting:
        lines.append(f"all {len(status.cells)} cells are already done")
    say("\n".join(lines), file=sys.stderr)


def _left_out(planned: Reproduction) -> list[str]:
    return [f"left out: {name}: {reason}" for name, reason in planned.left_out.items()]


def _finish(planned: Reproduction, as_json: bool) -> None:
    """Print the table, and write it and the report."""
    from opera.cli.printing.console import console
    from opera.cli.printing.paper import print_reproduced, reproduced_text
    from opera.experiments.paper.reproduce import collect_results, write_results

    reproduced = collect_results(planned)
    paths = write_results(reproduced, reproduced_text(reproduced))
    if as_json:
        say(json_text(reproduced.as_dict()))
    else:
        print_reproduced(console(), reproduced)
        say("\n" + "\n".join(str(place(path)) for path in paths))
