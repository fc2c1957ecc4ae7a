"""Print lines and tables to standard output or a file. Markup in a text is printed literally."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from opera.core.terminal import printable, printing_to

if TYPE_CHECKING:
    from opera.experiments.report.tables import ReportTable


class Screen:
    """Prints results. It escapes every text, so only the caller sets styles.

    Args:
        file: standard output by default.
        width: characters of a line; by default the terminal's width, or at least 120 without one.
    """

    def __init__(self, file: TextIO | None = None, width: int | None = None) -> None:
        from rich.console import Console

        self._file = file or sys.stdout
        if width is None and not self._file.isatty():
            width = max(120, shutil.get_terminal_size().columns)
        self._console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)

    def lines(self, *lines: str | None, style: str = "", **options: Any) -> None:
        """Print lines, leaving out those that are ``None``."""
        with printing_to(self._file):
            for line in lines:
                if line is not None:
                    self._console.print(printable(line), style=style, **options)

    def heading(self, text: str) -> None:
        """Print a line in bold."""
        self.lines(text, style="bold")

    def cut(self, *lines: str, style: str = "") -> None:
        """Print lines, cut at the width of the screen."""
        self.lines(*lines, style=style, overflow="ellipsis", no_wrap=True)

    def document(self, head: str, text: str) -> None:
        """Print a heading and a document's text, each cut to one line."""
        self.cut(head)
        self.cut(f"       {flat(text)}", style="dim")

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        words: int = 1,
        **look: Any,
    ) -> None:
        """Print a table.

        Args:
            columns: the headings.
            rows: the cells of each row.
            words: how many of the first columns hold text; the numbers after them align right.
            look: arguments of rich's ``Table``.
        """
        from rich.table import Table
        from rich.text import Text

        table = Table(**look)
        for number, column in enumerate(columns):
            table.add_column(
                Text(printable(column)),
                justify="left" if number < words else "right",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        with printing_to(self._file):
            self._console.print(table)

    def report_table(self, table: ReportTable) -> None:
        """Print a table of a report. It is narrow, since only its headings have a line."""
        from rich import box

        self.lines(table.caption, style="dim")
        self.table(
            table.columns,
            [[row.get(name, "") for name in table.columns] for row in table.rows],
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )


def flat(text: str) -> str:
    """Put corpus text on one line, without its control characters."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in text).split())
