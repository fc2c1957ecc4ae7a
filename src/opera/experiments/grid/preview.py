"""What a grid will run and how long it will take: ``opera compare --plan``."""

from __future__ import annotations

import os
from typing import Any

from rich.table import Table
from rich.text import Text

from opera.config.automatic import Situation
from opera.core.errors import InputError, TrainingError
from opera.experiments.grid.interrupts import signals_as_interrupt
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.progress import format_steps, table_rows
from opera.experiments.grid.status import Rate, Status, format_duration
from opera.experiments.grid.worker_process import Message, WorkerLostError, make_workers


def time_grid(status: Status, model: str) -> None:
    """Time a few training steps on each data set without a finished cell, and add the rates to the status.

    Raises:
        InputError: if training refuses the input, such as a setting that this model cannot have.
        TrainingError: if these steps fail.
        KeyboardInterrupt: after Ctrl-C or SIGTERM.
    """
    finished = {cell.data for cell in status.cells if cell.folder in status.done}
    for source in dict.fromkeys(cell.data for cell in status.waiting):
        if source in finished:
            continue
        cell = next(cell for cell in status.cells if cell.data == source)
        message = _time_cell(cell, model, jobs=min(status.jobs, len(status.waiting)))
        if message.get("input"):
            raise InputError(*message["failed"].split("\n"))
        if "timing" not in message:
            raise TrainingError(f"timing {source}: {message.get('failed', 'stopped')}")
        timing = message["timing"]
        status.timed[source] = Rate(timing["per_step"], timing["overhead"])
        status.encoding[source] = timing["encoding"]
        status.model_bytes = timing["model_bytes"]
        status.situations[source] = Situation(**timing["situation"])


def plan_records(status: Status) -> dict[str, Any]:
    """What a grid will run, for JSON: each cell with its seconds, and the total."""
    cells = [
        {
            "data": cell.data,
            "method": cell.label,
            "steps": status.steps(cell),
            "seed": cell.seed,
            "run": str(cell.folder),
            "finished": cell.folder in status.done,
            "seconds": None if (seconds := status.seconds(cell)) is None else round(seconds, 1),
        }
        for cell in status.cells
    ]
    return {"cells": cells, "jobs": status.jobs, "seconds_left": status.seconds_left()}


def plan_table(status: Status) -> Table:
    """What a grid will run: a row per data set, method and number of steps, with its time."""
    table = Table()
    for column in ("data", "method", "steps", "seeds", "to run", "each, about", "together, about"):
        table.add_column(column, justify="left" if column in ("data", "method") else "right")
    for cells in table_rows(status.cells):
        cell = cells[0]
        steps, each = status.steps(cell), status.seconds(cell)
        remaining = sum(cell.folder not in status.done for cell in cells)
        table.add_row(
            Text(cell.data_name),
            Text(cell.label),
            format_steps(steps),
            ", ".join(str(cell.seed) for cell in cells),
            str(remaining),
            "" if each is None else format_duration(each),
            "" if each is None else format_duration(each * remaining),
        )
    return table


def disk_line(status: Status) -> str:
    """One sentence on the disk space that the cells will take; empty where the model was not measured."""
    if status.model_bytes is None:
        return ""
    each, count = status.model_bytes / 1e6, len(status.waiting)
    return f"each run keeps its trained model, about {each:,.0f} MB: {each * count / 1000:,.1f} GB in all"


def _time_cell(cell: Cell, model: str, jobs: int) -> Message:
    """Time a cell in a worker with the cores that it has when ``jobs`` run; returns the worker's last message."""
    worker = make_workers(jobs)[0]
    job = {
        "kind": "time",
        "data": cell.data,
        "model": model,
        "values": dict(cell.values),
        "log": os.devnull,
    }
    try:
        with signals_as_interrupt():
            message = worker.run_job(job)
    except WorkerLostError as lost:
        return {"failed": str(lost)}
    except KeyboardInterrupt:
        worker.terminate()
        raise
    finally:
        worker.close()
    return message
