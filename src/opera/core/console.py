"""The console that tables and lines are printed on: whatever texts they hold, none is a command to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from opera.core.terminal import printable


class SafeConsole(Console):
    """Escapes every text it is given. Plain strings are text and not markup; styles come from the caller alone."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **arguments})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, with every segment of text escaped; rich's own control segments pass."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
