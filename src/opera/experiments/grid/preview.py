"""What the cells of a grid will cost: ``opera compare --plan``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapreplace
from pathlib import Path
from typing import Any

from opera.config.automatic import Situation, resolve
from opera.config.recipe import make_recipe
from opera.core.errors import InputError, TrainingError
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.run import Message, Status, job_of, run_jobs


@dataclass(frozen=True)
class Timing:
    """What a cell of a data set costs.

    Attributes:
        per_step: seconds per training step, of both trainings where the guard trains twice.
        overhead: seconds to load, to save checkpoints, and to encode the corpus after training.
        encoding: seconds to encode the corpus before training, once for all cells.
        model_bytes: approximate size of the trained model on disk.
        situation: what its automatic settings depend on.
    """

    per_step: float
    overhead: float
    encoding: float
    model_bytes: int
    situation: Situation

    def steps(self, cell: Cell) -> int:
        """The cell's number of steps, an automatic one worked out."""
        if cell.steps is not None:
            return cell.steps
        return int(resolve(make_recipe(cell.values).train, self.situation).max_steps or 0)

    def seconds(self, cell: Cell) -> float:
        """Seconds of the cell, without the encoding that all share."""
        return self.per_step * self.steps(cell) + self.overhead


Timings = Mapping[str, Timing]
"""By data set; those not timed are missing."""


def time_grid(status: Status, model: str) -> dict[str, Timing]:
    """Time a few training steps on each data set with cells to run.

    InputError is raised if training refuses the input, TrainingError if the steps fail.
    """
    timings: dict[str, Timing] = {}
    cells = list({cell.data: cell for cell in reversed(status.waiting)}.values())[::-1]

    if not cells:
        return timings

    def ended(number: int, message: Message) -> None:
        if message.get("input"):
            raise InputError(*message["failed"].split("\n"))
        if "failed" in message:
            raise TrainingError(f"timing {cells[number].data}: {message['failed']}")
        timing = message["timing"]
        situation = Situation(**timing["situation"])
        timings[cells[number].data] = Timing(**{**timing, "situation": situation})

    jobs = [(job_of(cell, model), Path(os.devnull)) for cell in cells]
    run_jobs(jobs, 1, min(status.jobs, len(status.waiting)), ended)
    return timings


def plan_records(status: Status, timings: Timings) -> dict[str, Any]:
    """What a grid will run, for JSON: each cell with its seconds, and the total."""
    cells = []
    for cell in status.cells:
        timing = timings.get(cell.data)
        cells.append(
            {
                "data": cell.data,
                "method": cell.label,
                "steps": cell.steps if timing is None else timing.steps(cell),
                "seed": cell.seed,
                "run": str(cell.folder),
                "finished": cell.folder in status.done,
                "seconds": None if timing is None else round(timing.seconds(cell), 1),
            }
        )
    return {"cells": cells, "jobs": status.jobs, "seconds_left": seconds_left(status, timings)}


def seconds_left(status: Status, timings: Timings) -> float | None:
    """Estimate the seconds until the last cell is done; ``None`` while a data set is not timed."""
    if any(cell.data not in timings for cell in status.waiting):
        return None
    encoding = {data: timing.encoding for data, timing in timings.items()}
    free_at = [0.0] * status.jobs  # when each job is free for its next cell
    for cell in status.waiting:
        seconds = timings[cell.data].seconds(cell) + encoding.pop(cell.data, 0.0)
        heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)
