"""``opera reproduce``: a table of the paper, from data to our figures beside its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.compare import plan_answer
from opera.cli.options import (
    Answer,
    SetOption,
    collect_values,
    grid_exit_status,
    how_to_continue,
    interruptible,
    is_main_process,
    listed,
    numbers,
    path_option,
    several_processes,
    source_option,
)
from opera.cli.paper import print_paper_table
from opera.cli.screen import Screen
from opera.core.arguments import whole_number
from opera.core.errors import SettingError
from opera.core.terminal import place, say

if TYPE_CHECKING:
    from opera.experiments.grid.plan import Cell
    from opera.experiments.paper.plan import Reproduction
    from opera.experiments.paper.reproduce import Reproduced

FILE_WIDTH = 160


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
) -> Answer:
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
    part = parse_shard(shard) if shard is not None else None
    if part and table_only:
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
        given_seeds=None if seeds is None else tuple(numbers("seeds", seeds) or ()),
        settings=collect_values(None, set_, {}),
        data=data,
    )
    cells = planned.cells if part is None else cells_of_shard(planned.cells, *part)
    if plan:
        return _plan(planned, cells, jobs)
    return _table(planned) if table_only else _run(planned, cells, part, jobs)


def _plan(planned: Reproduction, cells: Sequence[Cell], jobs: int) -> Answer:
    from opera.experiments.paper.reproduce import preview

    with interruptible(lambda: "nothing was written"):
        status, timings, notes = preview(planned, cells, jobs)
    notes += _left_out(planned)
    about = {"table": planned.table.name, "model": planned.model, "notes": notes}
    disk = "opera data lists what each data set takes on disk"
    return plan_answer(status, timings, about, [disk, *notes])


def _run(
    planned: Reproduction,
    cells: Sequence[Cell],
    part: tuple[int, int] | None,
    jobs: int,
) -> Answer:
    """Fetch the data, run the cells, and make the table unless this is a shard."""
    from opera.experiments.grid.compare import prepare_cells
    from opera.experiments.paper.plan import recipe_note
    from opera.experiments.paper.reproduce import check_folder_and_model, run_reproduction

    main, whole, name = is_main_process(), len(planned.cells), None
    check_folder_and_model(planned)
    with interruptible(lambda: "no cell was begun; the same command continues"):
        notes = [recipe_note(planned.model), *_fetched(planned, cells), *_left_out(planned)]
        status = prepare_cells(cells, jobs)
    lines = [f"note: {note}" for note in notes]
    if part is not None:
        name = f"{part[0]}-of-{part[1]}"
        lines.append(f"shard {part[0]}/{part[1]}: {len(cells)} of {whole} cells")
        done = {cell.folder: ": done" for cell in cells if cell.folder in status.done}
        lines += [f"  {cell.title}{done.get(cell.folder, '')}" for cell in cells]
    if not status.waiting:
        lines.append(
            f"all {len(cells)} cells are already done" if cells else "there is no cell to run"
        )
    if main:
        say("\n".join(lines), file=sys.stderr)
    with interruptible(lambda: how_to_continue(status)):
        run_reproduction(planned, status, name, several_processes(), main)
    failed = grid_exit_status(status) if main else 0
    if not main or not (part or status.done):
        raise typer.Exit(failed)
    if part is None:
        return replace(_table(planned), status=failed)
    finished = sum(cell.finished for cell in planned.cells)
    advice = "once all are, the same command without --shard makes the table and the report"
    return Answer(
        lambda: {"cells": whole, "finished": finished},
        lambda screen: screen.lines(f"{finished} of all {whole} cells are done; {advice}"),
        failed,
    )


def _fetched(planned: Reproduction, cells: Sequence[Cell]) -> list[str]:
    """Fetch and load the data sets of the cells; under torchrun the main process goes first."""
    from opera.experiments.paper.reproduce import fetch_sets, write_noisy_sets

    with ExitStack() as stack:
        if several_processes():
            from opera.retrieval.device import join_processes

            stack.enter_context(join_processes().main_process_first())
        names = {cell.data_name for cell in cells}
        notes = fetch_sets(planned.sources, names)
        write_noisy_sets(planned, names)
    return notes


def _left_out(planned: Reproduction) -> list[str]:
    return [f"left out: {name}: {reason}" for name, reason in planned.left_out.items()]


def _table(planned: Reproduction) -> Answer:
    """Write the table and the report, and answer with it."""
    from opera.experiments.paper.reproduce import collect_results, write_results

    reproduced = collect_results(planned)
    paths = write_results(reproduced, reproduced_text(reproduced))

    def text(screen: Screen) -> None:
        print_reproduced(screen, reproduced)
        screen.lines("", *map(place, paths))

    return Answer(reproduced.as_dict, text)


def print_reproduced(screen: Screen, reproduced: Reproduced) -> None:
    """Print the table of the paper beside ours."""
    plan = reproduced.plan
    models = [Path(plan.model).name]
    print_paper_table(screen, plan.table, reproduced.rows, models, reproduced.notes)


def reproduced_text(reproduced: Reproduced) -> str:
    """The same as plain text, for a file."""
    text = StringIO()
    print_reproduced(Screen(text, FILE_WIDTH), reproduced)
    return text.getvalue()
