"""``opera compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import (
    BatchSizeOption,
    ConfigOption,
    EpochsOption,
    FutureOption,
    JsonOption,
    LearningRateOption,
    ModelOption,
    NegativesOption,
    PresetOption,
    RangeOption,
    SetOption,
    TeacherOption,
    TrainerOption,
    batch_options,
    collect_values,
    how_to_continue,
    interruptible,
    listed,
    numbers,
    path_option,
    trainer_fields,
)
from opera.core.terminal import json_text, place, say

if TYPE_CHECKING:
    from opera.experiments.analysis import Comparison
    from opera.experiments.grid.status import Status


def compare(
    data: Annotated[list[str], typer.Argument(help="data sets, as for opera train", metavar="DATA...")],
    model: ModelOption,
    out: Annotated[Path, path_option("--out", "folder of the grid")],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="comma-separated, settings after colons: ft,sp:k=0.5,dp; default the recipe's, else ft,dp",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="comma-separated; default the recipe's, else 0,1,2")
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps", help="numbers of optimizer steps, comma-separated; default the recipe's, else set from the data"
        ),
    ] = None,
    epochs: EpochsOption = None,
    preset: PresetOption = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="the method to test against; default ft, else the first")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many cells to run at once")] = 1,
    batch_size: BatchSizeOption = None,
    lr: LearningRateOption = None,
    negatives: NegativesOption = None,
    range_: RangeOption = None,
    teacher: TeacherOption = None,
    future: FutureOption = None,
    set_: SetOption = None,
    trainer: TrainerOption = None,
    config: ConfigOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="print the cells and estimated times, then exit")] = False,
    json_: JsonOption = False,
) -> None:
    """Train methods x seeds x steps on one or more data sets and compare them. Finished cells are not repeated.

    Takes the settings of opera train, for all cells.
    """
    from opera.experiments.grid.axes import grid_axes
    from opera.experiments.grid.compare import analyse_grid, check_baseline, prepare_grid
    from opera.experiments.grid.folder import opened_grid
    from opera.experiments.grid.preview import time_grid
    from opera.experiments.grid.progress import Progress
    from opera.experiments.grid.run import run_grid

    options = {"method": methods, "seed": seeds, "max_steps": steps} | trainer_fields(trainer)
    axes, shared = grid_axes(
        collect_values(
            config, set_, options | batch_options(epochs, preset, batch_size, lr, negatives, range_, teacher, future)
        ),
        None if methods is None else listed(methods),
        None if seeds is None else numbers("seeds", seeds),
        None if steps is None else numbers("steps", steps),
    )
    status = prepare_grid(data, axes, out, model, shared, jobs)
    baseline = check_baseline(baseline, axes)
    if plan:
        with interruptible(lambda: "nothing was written"):
            time_grid(status, model)
        _print_plan(status, json_)
        return
    if not status.waiting:
        say(f"all {len(status.cells)} cells are already done", file=sys.stderr)
    stoppable = interruptible(lambda: how_to_continue(status))
    with opened_grid(out, model, shared, status.cells), stoppable:
        run_grid(status, model, Progress(status))
    if status.done:
        _print_results(analyse_grid(status, out, baseline), out, json_)
    if status.failed:
        count = len(status.failed)
        say(f"{count} cell{'s' * (count > 1)} failed, see above; the same command tries again", file=sys.stderr)
        raise typer.Exit(1)


def _print_plan(status: Status, as_json: bool) -> None:
    from opera.cli.printing.console import console
    from opera.experiments.grid.preview import disk_line, plan_records, plan_table
    from opera.experiments.grid.progress import progress_line

    if as_json:
        say(json_text(plan_records(status)))
    else:
        console().print(plan_table(status))
        say("\n".join(line for line in (progress_line(status), disk_line(status)) if line))


def _print_results(comparison: Comparison, out: Path, as_json: bool) -> None:
    from opera.cli.printing.console import console
    from opera.cli.printing.grid_results import print_grid_results

    if as_json:
        say(json_text(comparison.as_dict()))
    else:
        print_grid_results(console(), comparison)
        say(f"\nWrite an HTML report: opera report {place(out)}")
