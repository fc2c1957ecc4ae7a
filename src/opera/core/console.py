"""The console that tables and lines are printed on: whatever texts they hold, none is a command to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from opera.core.terminal import printable, printing_to


class SafeConsole(Console):
    """Escapes every text it is given. Plain strings are text and not markup; styles come from the caller alone."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **arguments})

    def print(self, *objects: Any, **arguments: Any) -> None:
        """Print as rich does; an error names standard output, where that is what cannot be written."""
        with printing_to(self.file):
            super().print(*objects, **arguments)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, with every segment of text escaped; rich's own control segments pass."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
