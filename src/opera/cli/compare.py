"""``opera compare``, and ``opera report`` on what it ran."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from opera.cli.grids import plan_answer, print_results
from opera.cli.options import (
    Answer,
    GivenSettings,
    ModelOption,
    OverwriteOption,
    Tables,
    grid_exit_status,
    how_to_continue,
    interruptible,
    listed,
    numbers,
    parser_of,
    path_option,
    settings_but,
)
from opera.core.paths import user_path
from opera.core.terminal import json_text, place, say

BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", help="the method to test against; default ft, else the first"),
]


def compare(
    *,
    data: Annotated[
        list[str] | None, typer.Argument(help="data sets, as for opera train", metavar="DATA...")
    ] = None,
    model: ModelOption,
    out: Annotated[Path, path_option("--out", "folder of the grid")],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="comma-separated, settings after colons: ft,sp:k=0.5,dp; default the recipe's, "
            "else ft,dp",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="comma-separated; default the recipe's, else 0,1,2"),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            help="numbers of optimizer steps, comma-separated; default the recipe's, else set "
            "from the data",
        ),
    ] = None,
    baseline: BaselineOption = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many cells to run at once")] = 1,
    settings: Annotated[GivenSettings, settings_but("seed", "max_steps")],
    plan: Annotated[
        bool, typer.Option("--plan", help="print the cells and estimated times, then exit")
    ] = False,
    tables: Tables,
) -> Answer:
    """Train methods x seeds x steps on one or more data sets and compare them.

    Finished cells are not repeated. Takes the settings of opera train, for all cells.
    """
    from opera.experiments.grid.compare import analyse_grid, check_baseline, prepare_grid
    from opera.experiments.grid.folder import grid_record, opened_grid
    from opera.experiments.grid.plan import grid_axes
    from opera.experiments.grid.preview import time_grid
    from opera.experiments.grid.run import run_grid

    axes, shared = grid_axes(
        settings.values(method=methods, seed=seeds, max_steps=steps),
        None if methods is None else listed(methods),
        numbers("seeds", seeds),
        numbers("steps", steps, "100,1000"),
    )
    status = prepare_grid(
        [tables(each) for each in data or (None,)], axes, out, model, shared, jobs
    )
    baseline = check_baseline(baseline, axes)
    if plan:
        with interruptible(lambda: "nothing was written"):
            timings = time_grid(status, model)
        return plan_answer(status, timings)
    if not status.waiting:
        say(f"all {len(status.cells)} cells are already done", file=sys.stderr)
    stoppable = interruptible(lambda: how_to_continue(status))
    with opened_grid(out, grid_record(out, model, shared, status.cells)), stoppable:
        run_grid(status, model)
    failed = grid_exit_status(status)
    if not status.done:
        raise typer.Exit(failed)
    comparison = analyse_grid(status, out, baseline)
    return Answer(
        comparison.as_dict, partial(print_results, comparison=comparison, out=out), failed
    )


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="a grid, a run, or any folder of runs",
            metavar="GRID|RUN",
            parser=parser_of(user_path, "GRID|RUN"),
        ),
    ],
    out: Annotated[
        Path | None, path_option("--out", "file to write; default report.html in the folder")
    ] = None,
    overwrite: OverwriteOption = False,
    baseline: BaselineOption = None,
    json_: Annotated[
        bool, typer.Option("--json", help="print the analysis as JSON, and write no page")
    ] = False,
) -> None:
    """Write one HTML page on a grid or a run: verdict, tables with tests, what was drawn."""
    from opera.experiments.analysis import analyse_runs
    from opera.experiments.report import report as write_report

    if json_:
        say(json_text(analyse_runs(folder, baseline).as_dict()))
        return
    path = write_report(folder, out, baseline=baseline, overwrite=overwrite)
    say(f"{place(path)}: open it in a browser (self-contained)")
