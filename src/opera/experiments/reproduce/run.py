"""Run the cells of a reproduction: all of them, or one shard, in worker processes or in those that torchrun started."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from opera.core.extras import require
from opera.data import check_stays_out
from opera.experiments.grid.compare import prepare_cells
from opera.experiments.grid.folder import check_grid_folder, opened_grid
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.progress import Progress
from opera.experiments.grid.run import run_grid
from opera.experiments.grid.status import Status
from opera.experiments.reproduce.left_out import record_left_out
from opera.experiments.reproduce.plan import ReproductionPlan, Shard
from opera.experiments.reproduce.sets import fetch_sets, is_here
from opera.retrieval.locate import locate_model


def check_folder_and_model(plan: ReproductionPlan) -> None:
    """Check the grid's folder, the model, and what the report needs: nothing here reads data. Writes nothing.

    Raises:
        InputError: for a folder that holds something else, a model that cannot be, or a missing package.
    """
    require("plotly", "the report of opera reproduce")
    check_grid_folder(plan.out, plan.model, plan.shared.settings, plan.settings_by_set)
    for source in plan.chosen.sources.values():
        check_stays_out(plan.out, "--out", source, folder=True)
    locate_model(plan.model)


def check_reproduction(plan: ReproductionPlan, cells: Sequence[Cell], jobs: int) -> ReproductionPlan:
    """Check what a run would refuse, as far as that needs neither torch nor a network. Writes nothing.

    Args:
        plan: the reproduction.
        cells: the cells of this call, all or one shard's.
        jobs: how many run at once.

    Returns:
        The plan with the counts of the data sets that are here, and without optional ones that cannot be read.

    Raises:
        InputError: for invalid input.
    """
    check_folder_and_model(plan)
    here = {cell.data_name for cell in cells if is_here(cell.data)}
    plan = plan.with_sets(fetch_sets(plan.chosen, here))
    prepare_cells([cell for cell in cells if cell.data_name in here & plan.sources.keys()], jobs)
    return plan


def run_reproduction(
    plan: ReproductionPlan, status: Status, shard: Shard | None, together: bool = False, main: bool = True
) -> None:
    """Run the cells that are not finished.

    Args:
        plan: the reproduction.
        status: the cells to run; kept up to date.
        shard: which part of the cells these are; ``None`` for all.
        together: whether this process is one of several that train each cell together.
        main: whether this process writes and prints; one of several that are together does.

    Raises:
        RunFolderError: if another process runs these cells.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the running cells have saved a checkpoint.
    """
    name = None if shard is None else shard.name
    scale = plan.shared.scale.name if plan.shared.scale.small else None
    held = opened_grid(plan.out, plan.model, plan.shared.settings, plan.cells, plan.settings_by_set, name, scale)
    with held if main else nullcontext():
        if main:
            record_left_out(plan, {cell.data_name for cell in status.cells})
        if together:
            from opera.experiments.grid.together import run_together

            run_together(status, plan.model)
        else:
            run_grid(status, plan.model, Progress(status))
