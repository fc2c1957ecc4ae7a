"""The console for results, and corpus text that cannot steer it."""

from __future__ import annotations

import shutil
import sys

from rich.console import Console


def console() -> Console:
    """Return the console for results, on standard output; where that is no terminal, lines are 120 wide or more."""
    width = None if sys.stdout.isatty() else max(120, shutil.get_terminal_size().columns)
    return Console(width=width, highlight=False)


def one_line(text: str) -> str:
    """Put corpus text on one line, without the control characters by which it could steer a terminal."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in text).split())
