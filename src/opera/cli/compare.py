"""``opera compare``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import JsonOption, ModelOption, interruptible
from opera.core.errors import SettingError

if TYPE_CHECKING:
    from opera.experiments.grid.status import Status


def compare(
    data: Annotated[list[str], typer.Argument(help="data sets, as for opera train", metavar="DATA...")],
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="folder of the grid")],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="comma-separated, settings behind colons: ft,sp:k=0.5,dp; default the recipe's, else ft,dp",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="comma-separated; default the recipe's, else 0,1,2")
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option("--steps", help="numbers of optimizer steps, comma-separated; default the recipe's, else 1000"),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="the method to test against; default ft, else the first")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many cells to run at once")] = 1,
    set_: Annotated[list[str] | None, typer.Option("--set", help="a setting of all cells, as key=value")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML recipe of settings of all cells")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="print the cells and about how long they take, and stop")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Train methods x seeds x steps on some data sets and compare them; finished cells are not repeated."""
    from opera.cli.printing.console import console
    from opera.cli.printing.grid_results import print_grid_results
    from opera.config.yaml import parse_assignments, read_recipe
    from opera.experiments.grid.compare import analyse_grid, check_baseline, prepare_grid
    from opera.experiments.grid.folder import grid_lock, write_grid_file
    from opera.experiments.grid.plan import grid_axes
    from opera.experiments.grid.preview import disk_line, plan_records, plan_table, time_grid
    from opera.experiments.grid.progress import live_progress, progress_line
    from opera.experiments.grid.run import run_grid

    axes, shared = grid_axes(
        read_recipe(config) if config else {},
        None if methods is None else _listed(methods),
        None if seeds is None else _numbers("seeds", seeds),
        None if steps is None else _numbers("steps", steps),
    )
    shared |= parse_assignments(set_ or [])
    status = prepare_grid(data, axes, out, model, shared, jobs)
    baseline = check_baseline(baseline, axes)
    if plan:
        with interruptible(lambda: "nothing was written"):
            time_grid(status, model)
        if json_:
            print(json.dumps(plan_records(status), indent=2))
        else:
            console().print(plan_table(status))
            print("\n".join(line for line in (progress_line(status), disk_line(status)) if line))
        return
    write_grid_file(out, model, shared, status.cells)
    if not status.waiting:
        print(f"all {len(status.cells)} cells were done already", file=sys.stderr)
    with grid_lock(out), interruptible(lambda: _how_to_go_on(status)), live_progress(status) as on_change:
        run_grid(status, model, on_change)
    if status.done:
        comparison = analyse_grid(status, out, baseline)
        if json_:
            print(json.dumps(comparison.as_dict(), indent=2))
        else:
            print_grid_results(console(), comparison)
            print(f"\nopera report {out} makes a page of it")
    if status.failed:
        count = len(status.failed)
        print(f"{count} cell{'s' * (count > 1)} failed, see above; the same command tries again", file=sys.stderr)
        raise typer.Exit(1)


def _how_to_go_on(status: Status) -> str:
    return f"{len(status.done)} of {len(status.cells)} cells are done; the same command goes on where it stopped"


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(name: str, text: str) -> list[int]:
    parts = _listed(text)
    if bad := [part for part in parts if not part.isdecimal()]:
        raise SettingError(f"--{name}: must be whole numbers separated by commas, got '{bad[0]}'")
    return [int(part) for part in parts]
