"""The console for results, and corpus text made safe to print."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from opera.core.terminal import printable, printing_to


class SafeConsole(Console):
    """Escapes every text it is given. Plain strings are text and not markup; styles come from the
    caller alone.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **arguments})

    def print(self, *objects: Any, **arguments: Any) -> None:
        """Print as rich does; an error names standard output, where that is what cannot be
        written.
        """
        with printing_to(self.file):
            super().print(*objects, **arguments)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, with every segment of text escaped; rich's own control segments pass."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console() -> SafeConsole:
    """Return the console for results, on standard output; if that is not a terminal, lines are at
    least 120 wide.
    """
    width = None if sys.stdout.isatty() else max(120, shutil.get_terminal_size().columns)
    return SafeConsole(width=width)


def one_line(text: str) -> str:
    """Put corpus text on one line, without control characters that could affect the terminal."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in text).split())


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> Table:
    """Make a table whose first ``words`` columns hold words, and the others numbers, to the
    right.
    """
    table = Table()
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < words else "right")
    for row in rows:
        table.add_row(*row)
    return table
