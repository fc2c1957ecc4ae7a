"""``opera compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import (
    BatchSizeOption,
    ColumnsOption,
    ConfigOption,
    DocumentsOption,
    EpochsOption,
    FutureOption,
    JsonOption,
    LearningRateOption,
    ModelOption,
    NegativesOption,
    PairsOption,
    PresetOption,
    QueriesOption,
    RangeOption,
    SetOption,
    TeacherOption,
    TrainerOption,
    collect_values,
    end_if_failed,
    given_settings,
    how_to_continue,
    interruptible,
    listed,
    numbers,
    one_source,
    path_option,
)
from opera.core.terminal import json_text, place, say

if TYPE_CHECKING:
    from opera.experiments.analysis import Comparison


def compare(
    context: typer.Context,
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
    epochs: EpochsOption = None,
    preset: PresetOption = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="the method to test against; default ft, else the first"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many cells to run at once")] = 1,
    per_device_train_batch_size: BatchSizeOption = None,
    learning_rate: LearningRateOption = None,
    negatives: NegativesOption = None,
    range: RangeOption = None,
    teacher_scores: TeacherOption = None,
    future: FutureOption = None,
    set_: SetOption = None,
    trainer: TrainerOption = None,
    config: ConfigOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="print the cells and estimated times, then exit")
    ] = False,
    json_: JsonOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Train methods x seeds x steps on one or more data sets and compare them.

    Finished cells are not repeated. Takes the settings of opera train, for all cells.
    """
    from opera.cli.printing.plan import print_plan
    from opera.experiments.grid.compare import analyse_grid, check_baseline, prepare_grid
    from opera.experiments.grid.folder import grid_record, opened_grid
    from opera.experiments.grid.plan import grid_axes
    from opera.experiments.grid.preview import time_grid
    from opera.experiments.grid.run import run_grid

    sources = [one_source(each, pairs, documents, queries, columns) for each in data or (None,)]
    options = given_settings(context) | {"method": methods, "seed": seeds, "max_steps": steps}
    axes, shared = grid_axes(
        collect_values(config, set_, options),
        None if methods is None else listed(methods),
        None if seeds is None else numbers("seeds", seeds),
        None if steps is None else numbers("steps", steps),
    )
    status = prepare_grid(sources, axes, out, model, shared, jobs)
    baseline = check_baseline(baseline, axes)
    if plan:
        with interruptible(lambda: "nothing was written"):
            timings = time_grid(status, model)
        print_plan(status, timings, json_)
        return
    if not status.waiting:
        say(f"all {len(status.cells)} cells are already done", file=sys.stderr)
    stoppable = interruptible(lambda: how_to_continue(status))
    with opened_grid(out, grid_record(out, model, shared, status.cells)), stoppable:
        run_grid(status, model)
    if status.done:
        _print_results(analyse_grid(status, out, baseline), out, json_)
    end_if_failed(status)


def _print_results(comparison: Comparison, out: Path, as_json: bool) -> None:
    from opera.cli.printing.console import console
    from opera.cli.printing.grid_results import print_grid_results

    if as_json:
        say(json_text(comparison.as_dict()))
    else:
        print_grid_results(console(), comparison)
        say(f"\nWrite an HTML report: opera report {place(out)}")
