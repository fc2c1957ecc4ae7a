"""Run the cells of a grid one after another in this process: under torchrun, where all processes train each cell."""

from __future__ import annotations

from opera.core.processes import from_main
from opera.experiments.grid.status import Status
from opera.experiments.grid.worker import load_once
from opera.retrieval.device import join_processes
from opera.runs.folder import holds_run
from opera.runs.housekeeping import drop_checkpoints
from opera.training.adapt import adapt


def run_together(status: Status, model: str) -> None:
    """Run the cells that are not finished, each in all processes. The main one decides which these are.

    Args:
        status: the cells; kept up to date.
        model: the model that all cells start from.

    Raises:
        OperaError: if a cell fails; torchrun then ends the other processes, and the same command goes on.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; the cell that runs has saved a checkpoint.
    """
    processes = join_processes()
    waiting = set(from_main([str(cell.folder) for cell in status.waiting]))
    for cell in status.cells:
        if str(cell.folder) not in waiting:
            continue
        resume = from_main(holds_run(cell.folder))
        adapt(load_once(cell.data), model=model, out=cell.folder, resume=resume, **cell.values)
        if processes.is_main_process:
            drop_checkpoints(cell.folder)
        processes.wait_for_everyone()
        status.done.add(cell.folder)
