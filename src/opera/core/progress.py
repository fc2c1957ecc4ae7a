"""Show progress: a bar on a terminal, else a line in the log now and then."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from tqdm import tqdm

from opera.core.arrays import T
from opera.core.terminal import log

FRACTION_BETWEEN = 0.05
"""A line follows when this fraction of the items has been done since the last line, ..."""
SECONDS_BETWEEN = 30.0
"""... or when this many seconds have passed."""
MIN_SECONDS_BETWEEN = 1.0
"""Short work has no lines, and fast work has at most one a second."""
LINE = "{desc}: {n_fmt} of {total_fmt}{unit}, {rate_noinv_fmt}{postfix}, {remaining} left"


def shows_bars() -> bool:
    """Whether standard error is a terminal with room for a bar.

    Some remote shells and CI services have a terminal of width 0, on which tqdm prints nothing.
    """
    with suppress(OSError):
        return sys.stderr.isatty() and min(os.get_terminal_size(sys.stderr.fileno())) > 1
    return False


class _Lines(tqdm):  # type: ignore[misc]
    """Logs lines in place of a bar."""

    _logged: tuple[float, float] | None = None  # the items that were done, and when

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Log a line if it is time for one. tqdm calls this at most once a second."""
        items, seconds = self._logged or (self.initial, self.start_t)
        is_due = (
            self.n - items >= FRACTION_BETWEEN * (self.total or math.inf)
            or self._time() - seconds >= SECONDS_BETWEEN
        )
        if msg is None and is_due:  # tqdm clears a bar with an empty message
            self._logged = (self.n, self._time())
            log.info("%s", str(self))


def progress(
    doing: str, total: int | None, unit: str, *, hidden: bool = False, initial: int = 0
) -> tqdm:
    """Return a progress bar, or its stand-in for a log. The caller closes it.

    Args:
        doing: the work, such as ``encoding documents``.
        total: the number of items; ``None`` if it is unknown.
        unit: the plural of an item; ``B`` for bytes.
        hidden: show nothing, as in all processes but the main process.
        initial: items that were done before.
    """
    lines = {
        "file": io.StringIO(),
        "bar_format": LINE if total else LINE.removesuffix(", {remaining} left"),
        "mininterval": MIN_SECONDS_BETWEEN,
        "delay": MIN_SECONDS_BETWEEN,
    }
    kind, style = (tqdm, {}) if shows_bars() else (_Lines, lines)
    return kind(
        desc=doing,
        total=total,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        initial=initial,
        leave=False,
        disable=hidden,
        miniters=1,
        **style,
    )


def with_progress(
    items: Iterable[T], doing: str, total: int | None, unit: str, *, hidden: bool = False
) -> Iterator[T]:
    """Yield the items and show the progress. Arguments are those of :func:`progress`."""
    with progress(doing, total, unit, hidden=hidden) as bar:
        for item in items:
            yield item
            bar.update(1)


def duration(seconds: float) -> str:
    """Write a duration in one unit: ``40 s``, ``2 min``, ``3.1 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
