"""How far along is it? A bar on a terminal, and elsewhere a line in the log every few seconds."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

from tqdm.auto import tqdm

log = logging.getLogger("opera")

SECONDS_BETWEEN = 5.0
"""Between two lines, and before the first: what takes less is not reported."""

Item = TypeVar("Item")


class ProgressLines:
    """Logs ``training: 120 of 500 steps, loss 0.430, 2 min left``, at most every
    :data:`SECONDS_BETWEEN` seconds.

    It has the methods of tqdm's bar that OPERA uses, and is used where standard error is no
    terminal.

    Attributes:
        n: how many are done.
    """

    def __init__(
        self, doing: str, total: int | None, unit: str, initial: int = 0, rate: bool = False
    ) -> None:
        self.doing, self.total, self.unit, self.n, self.rate = doing, total, unit, initial, rate
        self._first, self._more = initial, ""
        self._start = self._last = time.monotonic()

    def update(self, count: int) -> None:
        """Count what was done, and log a line if it is time for one."""
        self.n += count
        now = time.monotonic()
        if count and now - self._last >= SECONDS_BETWEEN:
            self._last = now
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
                self._left(now),
            )

    def set_postfix(self, values: Mapping[str, str]) -> None:
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
    return tqdm(total=total, desc=doing, initial=initial, disable=hidden, **scaled)


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
