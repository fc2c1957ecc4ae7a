"""Run the cells of a reproduction: all of them, or one shard, in worker processes or in those that torchrun started."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from opera.data import check_stays_out
from opera.experiments.grid.compare import prepare_cells
from opera.experiments.grid.folder import check_grid_folder, opened_grid
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.preview import time_grid
from opera.experiments.grid.progress import Progress
from opera.experiments.grid.run import run_grid
from opera.experiments.grid.status import Status
from opera.experiments.paper.cells import papers_model, recipe_note
from opera.experiments.paper.plan import ReproductionPlan, Shard
from opera.experiments.paper.sets import fetch_sets, is_here
from opera.retrieval.locate import locate_model

PAPER_RATE = 2.43
"""Steps per second of plain fine-tuning on FiQA with 8 A100s (Table 5)."""


def check_folder_and_model(plan: ReproductionPlan) -> None:
    """Check the grid's folder and the model: nothing here reads data. Writes nothing.

    Raises:
        InputError: for a folder that holds something else, or a model that cannot be.
    """
    check_grid_folder(plan.out, plan.model, plan.shared.settings, plan.settings_by_set)
    for source in plan.sources.values():
        check_stays_out(plan.out, "--out", source, folder=True)
    locate_model(plan.model)


def preview(plan: ReproductionPlan, cells: Sequence[Cell], jobs: int) -> tuple[Status, list[str]]:
    """Check what a run would refuse and time steps, as far as data and model are here. Fetches and writes nothing.

    Args:
        plan: the reproduction.
        cells: the cells of this call, all or one shard's.
        jobs: how many run at once.

    Returns:
        The cells with their times where those are known, and notes.

    Raises:
        InputError: for invalid input.
        TrainingError: if the timed steps fail.
        KeyboardInterrupt: after Ctrl-C.
    """
    check_folder_and_model(plan)
    notes = fetch_sets(plan.sources, {cell.data_name for cell in cells if is_here(cell.data)})
    here = prepare_cells([cell for cell in cells if is_here(cell.data)], jobs)
    if isinstance(locate_model(plan.model), Path):
        time_grid(here, plan.model)
    status = Status.scan(cells, jobs)
    status.timed, status.encoding, status.model_bytes = here.timed, here.encoding, here.model_bytes
    if papers_model(plan.model) is not None:
        hours = sum(cell.steps or 0 for cell in status.waiting) / PAPER_RATE / 3600
        notes.append(
            f"On eight A100s, at the paper's {PAPER_RATE} steps per second of ft (Table 5): about {hours:,.0f} hours, "
            "one cell after another, without mining and encoding."
        )
    return status, [recipe_note(plan.model), *notes]


def run_reproduction(
    plan: ReproductionPlan,
    status: Status,
    shard: Shard | None,
    together: bool = False,
    main: bool = True,
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
    held = opened_grid(
        plan.out, plan.model, plan.shared.settings, plan.cells, plan.settings_by_set, name, scale
    )
    with held if main else nullcontext():
        if together:
            from opera.experiments.grid.together import run_together

            run_together(status, plan.model)
        else:
            run_grid(status, plan.model, Progress(status))
