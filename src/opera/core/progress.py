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
from typing import Any, Self, TypeVar

from tqdm.auto import tqdm

log = logging.getLogger("opera")

SECONDS_BETWEEN = 30.0
"""Between two lines, whatever they count, and before the first."""
KNOWN_AFTER = 2.0
"""Seconds of counting after which a unit's own pace replaces the one that was timed before."""

Item = TypeVar("Item")
Work = Mapping[str, Mapping[str, float]]
"""By phase, how many of which unit there are to do: ``{"train": {"steps": 400}}``."""


class Whole:
    """What is left of a job of several phases. Bars count it while :meth:`phase` is entered.

    Args:
        work: what there is to do.
        seconds: of each unit, where they were timed before.
    """

    current: Whole | None = None
    """The job at work."""

    def __init__(self, work: Work, seconds: Mapping[str, float] | None = None) -> None:
        self._left = {name: dict(units) for name, units in work.items()}
        self._timed, self._phase = dict(seconds or {}), ""
        self._done: defaultdict[str, float] = defaultdict(float)
        self._seconds = self._done.copy()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is done inside; at the end nothing is left of this phase."""
        outer, Whole.current, self._phase = Whole.current, self, name
        try:
            yield
        finally:
            Whole.current = outer
        self._left.pop(name, None)

    def count(self, unit: str, number: float, seconds: float | None = None) -> None:
        """Count what was done; ``seconds`` are left out where an earlier process did it."""
        own = self._left.get(self._phase, {})
        own[unit] = max(0, own.get(unit, 0) - number)
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


class _Paced:
    """Tells the job at work what a bar counts."""

    def __init__(self, unit: str, done: int) -> None:
        self._unit, self._told = unit, time.monotonic()
        if done and Whole.current is not None:
            Whole.current.count(unit, done)

    def count(self, number: int) -> str | None:
        """Count, and return how much is left in all, where that is known."""
        now, whole = time.monotonic(), Whole.current
        seconds, self._told = now - self._told, now
        if whole is None:
            return None
        whole.count(self._unit, number, seconds)
        left = whole.seconds_left()
        return None if left is None else f"{duration(left)} left in all"


class _Bar(tqdm):  # type: ignore[misc]
    """tqdm's bar, which goes when it is done and says how much is left in all."""

    def __init__(self, *given: Any, unit: str, initial: int, **more: Any) -> None:
        self._paced, self._values = _Paced(unit.strip(), initial), ""
        super().__init__(*given, unit=unit, initial=initial, leave=False, **more)

    def update(self, n: float = 1) -> Any:
        """Count what was done."""
        if not self.disable:
            left = self._paced.count(int(n))
            self.set_postfix_str(", ".join(filter(None, (self._values, left))), refresh=False)
        return super().update(n)

    def show(self, values: Mapping[str, str]) -> None:
        """Set what the bar also says, such as the latest loss."""
        self._values = ", ".join(f"{name} {value}" for name, value in values.items())


class ProgressLines:
    """Logs ``training: 120 of 500 steps, loss 0.430, 2 min left in all``, at most every
    :data:`SECONDS_BETWEEN` seconds.

    It has the methods of the bar that OPERA uses, and is used where standard error is no terminal.

    Attributes:
        n: how many are done.
    """

    _last = -SECONDS_BETWEEN
    """When a line was logged, or a wait for one began, by whichever."""

    def __init__(
        self, doing: str, total: int | None, unit: str, initial: int = 0, rate: bool = False
    ) -> None:
        self.doing, self.total, self.unit, self.n, self.rate = doing, total, unit, initial, rate
        self._first, self._more = initial, ""
        self._start, self._paced = time.monotonic(), _Paced(unit, initial)
        if not 0 <= self._start - ProgressLines._last < SECONDS_BETWEEN:
            ProgressLines._last = self._start

    def update(self, count: int) -> None:
        """Count what was done, and log a line if it is time for one."""
        self.n += count
        now, left = time.monotonic(), self._paced.count(count)
        if count and now - ProgressLines._last >= SECONDS_BETWEEN:
            ProgressLines._last = now
            of = "" if self.total is None else f" of {self._amount(self.total)}"
            unit = "" if self.unit == "B" else f" {self.unit}"
            rate = (
                f", {(self.n - self._first) / (now - self._start):,.0f} per second"
                if self.rate
                else ""
            )
            log.info(
                "%s: %s%s%s%s%s%s",
                self.doing,
                self._amount(self.n),
                of,
                unit,
                rate,
                self._more,
                self._left(now) if left is None else f", {left}",
            )

    def show(self, values: Mapping[str, str]) -> None:
        """Set what every line also says, such as the latest loss."""
        self._more = "".join(f", {name} {value}" for name, value in values.items())

    def close(self) -> None:
        """Do nothing; a bar is removed here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _amount(self, count: int) -> str:
        return f"{count / 1e6:,.1f} MB" if self.unit == "B" else f"{count:,}"

    def _left(self, now: float) -> str:
        done = self.n - self._first
        if self.total is None or done <= 0:
            return ""
        return f", {duration((now - self._start) / done * max(0, self.total - self.n))} left"


def progress(
    doing: str,
    total: int | None,
    unit: str,
    *,
    hidden: bool = False,
    initial: int = 0,
    rate: bool = False,
) -> Any:
    """Return a progress bar, or :class:`ProgressLines` where standard error is no terminal; close
    it at the end.

    Args:
        doing: what is done, such as ``encoding documents``.
        total: how many there are; ``None`` where nobody knows.
        unit: what is counted, in the plural; ``B`` for bytes.
        hidden: show nothing, as in all processes but one.
        initial: how many were done before.
        rate: whether lines say how many are done per second, as a bar does.
    """
    if not hidden and not sys.stderr.isatty():
        return ProgressLines(doing, total, unit, initial, rate)
    scaled = {"unit": "B", "unit_scale": True} if unit == "B" else {"unit": f" {unit}"}
    return _Bar(total=total, desc=doing, initial=initial, disable=hidden, **scaled)


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
