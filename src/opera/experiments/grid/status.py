"""The state of a grid while it runs, and an estimate of the time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from pathlib import Path

import numpy as np

from opera.config.automatic import Situation, resolve
from opera.config.recipe import make_recipe
from opera.experiments.grid.plan import Cell
from opera.runs.folder import Run


@dataclass(frozen=True)
class Rate:
    """What a cell costs.

    Attributes:
        per_step: seconds per training step.
        overhead: seconds of everything else: loading, encoding, evaluation.
    """

    per_step: float
    overhead: float

    def seconds(self, steps: int) -> float:
        """Seconds of a cell with this number of steps."""
        return self.per_step * steps + self.overhead


@dataclass
class Status:
    """The state of a grid.

    Attributes:
        cells: all cells, in the order they run.
        jobs: how many run at once.
        done: folders of the finished cells, earlier ones included.
        failed: why a cell failed, by folder.
        running: when each running cell started, by folder, in seconds of the monotonic clock.
        timed: rates measured beforehand, by data set.
        encoding: seconds to encode the corpus with the pretrained model, by data set, measured beforehand; only the
            first cell on a data set pays them.
        model_bytes: size of one trained model on disk, where it was measured.
        situations: what automatic settings depend on, by data set, found beforehand.
    """

    cells: Sequence[Cell]
    jobs: int = 1
    done: set[Path] = field(default_factory=set)
    failed: dict[Path, str] = field(default_factory=dict)
    running: dict[Path, float] = field(default_factory=dict)
    timed: dict[str, Rate] = field(default_factory=dict)
    encoding: dict[str, float] = field(default_factory=dict)
    model_bytes: int | None = None
    situations: dict[str, Situation] = field(default_factory=dict)
    _rates: dict[Path, Rate] = field(default_factory=dict)
    _steps: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def scan(cls, cells: Sequence[Cell], jobs: int = 1) -> Status:
        """Look which cells are finished.

        Raises:
            RunFolderError: if the run of a cell is damaged, or another version of OPERA wrote it.
        """
        return cls(cells, jobs, {cell.folder for cell in cells if cell.finished})

    @property
    def waiting(self) -> list[Cell]:
        """The cells that have not started."""
        started = self.done | self.failed.keys() | self.running.keys()
        return [cell for cell in self.cells if cell.folder not in started]

    def steps(self, cell: Cell) -> int | None:
        """The cell's steps; ``None`` while an automatic number is not known.

        It is known after another seed of the cell is finished, or from a timing beforehand.
        """
        if cell.steps is not None:
            return cell.steps
        for other in self.cells:
            if other.folder in self.done and (other.data, other.label, other.steps) == (
                cell.data,
                cell.label,
                None,
            ):
                return self._finished_steps(other)
        situation = self.situations.get(cell.data)
        if situation is None:
            return None
        return resolve(make_recipe(cell.values).train, situation).max_steps

    def seconds(self, cell: Cell) -> float | None:
        """Estimate the seconds of a whole cell; ``None`` while nothing is known."""
        rate, steps = self.rate(cell), self.steps(cell)
        return None if rate is None or steps is None else rate.seconds(steps)

    def rate(self, cell: Cell) -> Rate | None:
        """Estimate what a cell costs; ``None`` while nothing is known.

        The median over finished cells of its data set and method, else of its data set; else the rate measured
        beforehand; else the median over all finished cells.
        """
        finished = [other for other in self.cells if other.folder in self.done]
        same_data = [other for other in finished if other.data == cell.data]
        same_method = [other for other in same_data if other.label == cell.label]
        if alike := same_method or same_data:
            return self._median_rate(alike)
        if cell.data in self.timed:
            return self.timed[cell.data]
        return self._median_rate(finished) if finished else None

    def seconds_left(self) -> float | None:
        """Estimate the time until the last cell is done; ``None`` while nothing is known."""
        seconds: dict[Path, float] = {}
        for cell in self.cells:
            if cell.folder not in self.done | self.failed.keys():
                estimate = self.seconds(cell)
                if estimate is None:
                    return None
                seconds[cell.folder] = estimate
        encoding, now = dict(self.encoding), time.monotonic()
        # Seconds until each job is free for its next cell.
        free_at = [
            max(0.0, seconds[folder] - (now - started)) for folder, started in self.running.items()
        ]
        free_at += [0.0] * (self.jobs - len(free_at))
        heapify(free_at)
        for cell in self.waiting:
            heappush(
                free_at, heappop(free_at) + seconds[cell.folder] + encoding.pop(cell.data, 0.0)
            )
        return max(free_at)

    def _finished_steps(self, cell: Cell) -> int:
        """How many steps a finished cell had, read from its run once."""
        if cell.folder not in self._steps:
            self._steps[cell.folder] = int(Run.open(cell.folder).settings["max_steps"])
        return self._steps[cell.folder]

    def _median_rate(self, cells: Sequence[Cell]) -> Rate:
        return _median([self._finished_rate(cell) for cell in cells])

    def _finished_rate(self, cell: Cell) -> Rate:
        """What a finished cell cost, read from its run once."""
        if cell.folder not in self._rates:
            run = Run.open(cell.folder)
            seconds = run.record.seconds
            overhead = sum(
                value for name, value in seconds.items() if name not in ("train", "trial")
            )
            trainings = 2 if "trial" in seconds else 1
            self._rates[cell.folder] = Rate(
                trainings * float(run.trace()["seconds"].to_numpy().mean()), overhead
            )
        return self._rates[cell.folder]


def format_duration(seconds: float) -> str:
    """Format a duration: ``40 s``, ``14 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _median(rates: Sequence[Rate]) -> Rate:
    per_step, overhead = np.median(
        [(rate.per_step, rate.overhead) for rate in rates], axis=0
    ).tolist()
    return Rate(per_step, overhead)
