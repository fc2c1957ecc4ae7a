"""How far along is it? A line that changes on a terminal, and elsewhere one in the log every half
minute; of a job of several phases, what is left in all.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm import tqdm

log = logging.getLogger("opera")

SECONDS_BETWEEN = 30.0
"""Between two lines, whatever they count, and before the first."""
KNOWN_AFTER = 2.0
"""Seconds of counting after which a unit's own pace replaces the one that was timed before."""

Item = TypeVar("Item")
Work = Mapping[str, Mapping[str, float]]
"""By phase, how many of which unit there are to do: ``{"train": {"steps": 400}}``."""


class Job:
    """What is left of a job of several phases. Bars count it while :meth:`phase` is entered.

    Args:
        work: what there is to do.
        seconds: of each unit, where they were timed before.
    """

    current: Job | None = None
    """The job at work."""

    def __init__(self, work: Work, seconds: Mapping[str, float] | None = None) -> None:
        self._left = {name: dict(units) for name, units in work.items()}
        self._timed, self._phase = dict(seconds or {}), ""
        self._done: defaultdict[str, float] = defaultdict(float)
        self._seconds = self._done.copy()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is done inside; at the end nothing is left of this phase."""
        outer, Job.current, self._phase = Job.current, self, name
        try:
            yield
        finally:
            Job.current = outer
        self._left.pop(name, None)

    def count(self, unit: str, number: float, seconds: float | None = None) -> None:
        """Count what was done; ``seconds`` are left out where an earlier process did it."""
        units = self._left.get(self._phase, {})
        units[unit] = max(0, units.get(unit, 0) - number)
        if seconds is not None:
            self._done[unit] += number
            self._seconds[unit] += seconds

    def seconds_left(self) -> float | None:
        """Estimate what is left; ``None`` without work, or while the pace of some is not known."""
        if not self._left:
            return None
        total = 0.0
        for units in self._left.values():
            for unit, number in units.items():
                pace = self._timed.get(unit)
                if self._done[unit] and (pace is None or self._seconds[unit] > KNOWN_AFTER):
                    pace = self._seconds[unit] / self._done[unit]
                if pace is None and number:
                    return None
                total += number * (pace or 0.0)
        return total


class Bar(tqdm):  # type: ignore[misc]
    """tqdm's bar, which goes when it is done.

    If standard error is not a terminal, the log gets a line at most every :data:`SECONDS_BETWEEN`
    seconds instead: ``training: 120 of 500 steps, loss 0.430, 2 min left``.
    """

    last_line = -SECONDS_BETWEEN
    """When any bar logged a line, or the wait for one began."""

    def __init__(
        self, doing: str, total: int | None, unit: str, hidden: bool, initial: int, rate: bool
    ) -> None:
        self._to_log, self._rate, self._values = not (hidden or sys.stderr.isatty()), rate, ""
        self._counted, self._start = unit, time.monotonic()
        self._told = self._start
        if initial and Job.current is not None:
            Job.current.count(unit, initial)
        if not 0 <= self._start - Bar.last_line < SECONDS_BETWEEN:
            Bar.last_line = self._start
        scaled = {"unit": "B", "unit_scale": True} if unit == "B" else {"unit": f" {unit}"}
        super().__init__(
            desc=doing, total=total, initial=initial, leave=False, disable=hidden, **scaled
        )

    def update(self, n: float = 1) -> Any:
        """Count what was done."""
        now, job = time.monotonic(), Job.current
        seconds, self._told = now - self._told, now
        in_all = None
        if job is not None and not self.disable:
            job.count(self._counted, n, seconds)
            left = job.seconds_left()
            in_all = None if left is None else f"{duration(left)} left in all"
        if not self._to_log:
            self.set_postfix_str(", ".join(filter(None, (self._values, in_all))), refresh=False)
        result = super().update(n)
        if self._to_log and n and now - Bar.last_line >= SECONDS_BETWEEN:
            Bar.last_line = now
            log.info("%s", self._line(now, in_all))
        return result

    def show(self, values: Mapping[str, str]) -> None:
        """Set what the bar also says, such as the latest loss."""
        self._values = ", ".join(f"{name} {value}" for name, value in values.items())

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar, but not into a log."""
        if not self._to_log:
            super().display(msg, pos)

    def _line(self, now: float, left: str | None) -> str:
        """Say how far it is, for the log."""
        done, seconds = self.n - self.initial, now - self._start
        if left is None and self.total is not None:
            left = f"{duration(seconds / done * max(0, self.total - self.n))} left"
        of = "" if self.total is None else f" of {self._amount(self.total)}"
        unit = "" if self._counted == "B" else f" {self._counted}"
        pace = f"{done / seconds:,.0f} per second" if self._rate else ""
        said = f"{self.desc}: {self._amount(self.n)}{of}{unit}"
        return ", ".join(filter(None, (said, pace, self._values, left)))

    def _amount(self, count: float) -> str:
        return f"{count / 1e6:,.1f} MB" if self._counted == "B" else f"{count:,.0f}"


def progress(
    doing: str,
    total: int | None,
    unit: str,
    *,
    hidden: bool = False,
    initial: int = 0,
    rate: bool = False,
) -> Bar:
    """Return a progress bar; close it at the end.

    Args:
        doing: what is done, such as ``encoding documents``.
        total: how many there are; ``None`` if nobody knows.
        unit: what is counted, in the plural; ``B`` for bytes.
        hidden: show nothing, as in all processes but one.
        initial: how many were done before.
        rate: whether lines say how many are done per second, as a bar does.
    """
    return Bar(doing, total, unit, hidden, initial, rate)


def counted(
    items: Iterable[Item], doing: str, total: int | None, unit: str, *, hidden: bool = False
) -> Iterator[Item]:
    """Yield the items and report how many there were so far; arguments as for :func:`progress`."""
    with progress(doing, total, unit, hidden=hidden) as bar:
        for item in items:
            yield item
            bar.update(1)


def duration(seconds: float) -> str:
    """Write a duration to one unit: ``40 s``, ``2 min``, ``3.1 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
