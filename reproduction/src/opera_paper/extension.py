"""The extension that ``opera`` loads: data sets and recipes of the paper."""

from __future__ import annotations

from pathlib import Path

from opera.core.registry import register_recipes
from opera.data import RetrievalData, register_source
from opera_paper.catalogue import PREFIX, find_set


@register_source
class PaperSource:
    """``paper:NAME``, one of the paper's eight data sets."""

    description = "paper:NAME"

    def matches(self, source: str) -> bool:
        """Whether the source starts with ``paper:``."""
        return source.startswith(PREFIX)

    def load(self, source: str) -> RetrievalData:
        """Load the data set."""
        return find_set(source.removeprefix(PREFIX)).load()


register_recipes(Path(__file__).parent / "recipes")
