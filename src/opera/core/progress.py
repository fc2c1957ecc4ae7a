"""How far along is it? A bar on a terminal, and elsewhere a line in the log every half minute."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

log = logging.getLogger("opera")

SECONDS_BETWEEN = 30.0
"""Between two lines in the log, and before the first."""
LINE = "{desc}: {n_fmt} of {total_fmt}{unit}, {rate_fmt}{postfix}, {remaining} left"

Item = TypeVar("Item")


class _Log(io.StringIO):
    """Where tqdm writes if nobody sees a bar."""

    def write(self, text: str) -> int:
        """Log a line."""
        if line := text.strip():  # else tqdm clears the bar
            log.info("%s", line)
        return len(text)


def progress(
    doing: str, total: int | None, unit: str, *, hidden: bool = False, initial: int = 0
) -> tqdm:
    """Return a progress bar; close it at the end.

    Args:
        doing: what is done, such as ``encoding documents``.
        total: how many there are; ``None`` if nobody knows.
        unit: what is counted, in the plural; ``B`` for bytes.
        hidden: show nothing, as in all processes but one.
        initial: how many were done before.
    """
    how: dict[str, Any] = {"unit": f" {unit}"}
    if unit == "B":
        how = {"unit": "B", "unit_scale": True}
    if not sys.stderr.isatty():
        wait = {"mininterval": SECONDS_BETWEEN, "delay": SECONDS_BETWEEN}
        how |= {"file": _Log(), "bar_format": LINE, **wait}
    return tqdm(
        desc=doing, total=total, initial=initial, leave=False, disable=hidden, miniters=1, **how
    )


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
