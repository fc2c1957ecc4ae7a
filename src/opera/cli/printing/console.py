"""The console for results, and corpus text made safe to print."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.table import Table

from opera.core.console import SafeConsole


def console() -> SafeConsole:
    """Return the console for results, on standard output; if that is not a terminal, lines are at least 120 wide."""
    width = None if sys.stdout.isatty() else max(120, shutil.get_terminal_size().columns)
    return SafeConsole(width=width)


def one_line(text: str) -> str:
    """Put corpus text on one line, without control characters that could affect the terminal."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in text).split())


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> Table:
    """Make a table whose first ``words`` columns hold words, and the others numbers, to the right."""
    table = Table()
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < words else "right")
    for row in rows:
        table.add_row(*row)
    return table
