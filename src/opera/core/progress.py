"""Show progress: a bar on a terminal, else a line in the log every half minute."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

log = logging.getLogger("opera")

SECONDS_BETWEEN = 30.0
"""Seconds between lines in the log, and before the first line."""
LINE = "{desc}: {n_fmt} of {total_fmt}{unit}, {rate_fmt}{postfix}, {remaining} left"

Item = TypeVar("Item")


class _Log(io.StringIO):
    """The file that tqdm writes to if there is no terminal."""

    def write(self, text: str) -> int:
        """Log a line."""
        if line := text.strip():  # tqdm writes blanks to clear the bar
            log.info("%s", line)
        return len(text)


def progress(
    doing: str, total: int | None, unit: str, *, hidden: bool = False, initial: int = 0
) -> tqdm:
    """Return a progress bar. The caller closes it.

    Args:
        doing: the work, such as ``encoding documents``.
        total: the number of items; ``None`` if it is unknown.
        unit: the plural of an item; ``B`` for bytes.
        hidden: show nothing, as in all processes but the main process.
        initial: items that were done before.
    """
    style: dict[str, Any] = {"unit": f" {unit}"}
    if unit == "B":
        style = {"unit": "B", "unit_scale": True}
    if not sys.stderr.isatty():
        wait = {"mininterval": SECONDS_BETWEEN, "delay": SECONDS_BETWEEN}
        style |= {"file": _Log(), "bar_format": LINE, **wait}
    return tqdm(
        desc=doing, total=total, initial=initial, leave=False, disable=hidden, miniters=1, **style
    )


def with_progress(
    items: Iterable[Item], doing: str, total: int | None, unit: str, *, hidden: bool = False
) -> Iterator[Item]:
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
