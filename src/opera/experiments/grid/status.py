"""How a grid stands while it runs, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from pathlib import Path

import numpy as np

from opera.experiments.grid.plan import Cell
from opera.runs.folder import Run


@dataclass(frozen=True)
class Rate:
    """What a cell costs.

    Attributes:
        step: seconds of a training step.
        around: seconds of all else: loading, encoding, measuring.
    """

    step: float
    around: float

    def seconds(self, steps: int) -> float:
        """Seconds of a cell with so many steps."""
        return self.step * steps + self.around


@dataclass
class Running:
    """A cell that runs now.

    Attributes:
        began: when, in seconds of the monotonic clock.
        step: the step it is at.
        first_step: the step it began with, more than 0 for one that is resumed.
        first_seen: when that step was done.
        last_seen: when the step it is at was done.
    """

    began: float
    step: int = 0
    first_step: int | None = None
    first_seen: float = 0.0
    last_seen: float = 0.0

    def saw(self, step: int) -> None:
        """Take note of a step."""
        self.last_seen = time.monotonic()
        if self.first_step is None:
            self.first_step, self.first_seen = step, self.last_seen
        self.step = step

    def seconds_a_step(self) -> float | None:
        """Mean seconds of the steps seen; ``None`` before two of them."""
        if self.first_step is None or self.step == self.first_step:
            return None
        return (self.last_seen - self.first_seen) / (self.step - self.first_step)

    def seconds_left(self, rate: Rate, steps: int) -> float:
        """Seconds until it is done with all ``steps``, the measuring after training among them."""
        spent = time.monotonic() - self.began
        if self.first_step is None:
            return max(0.0, rate.seconds(steps) - spent)
        return max(0.0, rate.around + rate.step * (steps - self.first_step) - spent)


@dataclass
class Status:
    """How a grid stands.

    Attributes:
        cells: all cells, in the order they run.
        jobs: how many run at once.
        done: folders of those that are finished, before or now.
        failed: what went wrong, by folder.
        running: by folder.
        timed: rates that were measured beforehand, by data set.
        once: seconds of what the first cell on a data set makes for all, the pretrained vectors; measured beforehand.
        model_bytes: what each run's model takes on disk, where that was measured.
    """

    cells: Sequence[Cell]
    jobs: int = 1
    done: set[Path] = field(default_factory=set)
    failed: dict[Path, str] = field(default_factory=dict)
    running: dict[Path, Running] = field(default_factory=dict)
    timed: dict[str, Rate] = field(default_factory=dict)
    once: dict[str, float] = field(default_factory=dict)
    model_bytes: int | None = None
    _rates: dict[Path, Rate] = field(default_factory=dict)

    @classmethod
    def of(cls, cells: Sequence[Cell], jobs: int = 1) -> Status:
        """Look which cells are finished already."""
        return cls(cells, jobs, {cell.place for cell in cells if cell.finished})

    @property
    def waiting(self) -> list[Cell]:
        """The cells that have not begun."""
        begun = self.done | self.failed.keys() | self.running.keys()
        return [cell for cell in self.cells if cell.place not in begun]

    def rate(self, cell: Cell) -> Rate | None:
        """What a cell costs, as far as is known: median of the finished ones most like it, else as timed beforehand."""
        finished = [(other, self._rate_of(other)) for other in self.cells if other.place in self.done]
        for alike in (
            lambda other: (other.data, other.label) == (cell.data, cell.label),
            lambda other: other.data == cell.data,
        ):
            if rates := [rate for other, rate in finished if alike(other)]:
                return _median(rates)
        if cell.data in self.timed:
            return self.timed[cell.data]
        return _median([rate for _, rate in finished]) if finished else None

    def seconds_left(self) -> float | None:
        """Estimate the time until the last cell is done; ``None`` while nothing is known."""
        free: list[float] = []  # when each job is free for its next cell
        once = dict(self.once)
        cells = {cell.place: cell for cell in self.cells}
        seen: list[Rate] = []
        for place, running in list(self.running.items()):
            cell, rate, own = cells[place], self.rate(cells[place]), running.seconds_a_step()
            if own is not None:
                rate = Rate(own, rate.around if rate else running.first_seen - running.began)
                seen.append(rate)
            if rate is None:
                return None
            free.append(running.seconds_left(rate, cell.steps))
        free += [0.0] * (self.jobs - len(free))
        heapify(free)
        for cell in self.waiting:
            rate = self.rate(cell) or (_median(seen) if seen else None)
            if rate is None:
                return None
            heappush(free, heappop(free) + rate.seconds(cell.steps) + once.pop(cell.data, 0.0))
        return max(free)

    def _rate_of(self, cell: Cell) -> Rate:
        if cell.place not in self._rates:
            run = Run.open(cell.place)
            around = sum(value for name, value in run.record.seconds.items() if name != "train")
            self._rates[cell.place] = Rate(float(run.trace()["seconds"].to_numpy().mean()), around)
        return self._rates[cell.place]


def in_words(seconds: float) -> str:
    """A duration as people say it: ``40 s``, ``14 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def _median(rates: Sequence[Rate]) -> Rate:
    step, around = np.median([(rate.step, rate.around) for rate in rates], axis=0).tolist()
    return Rate(step, around)
