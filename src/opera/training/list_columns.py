"""Lists of negatives in a column, as the columns that a loss takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ListsOpened:
    """A trainer's collator, to which the first texts of lists of negatives are columns.

    sentence-transformers itself takes a list for one text in parts.

    Attributes:
        collate: the collator.
        lists: columns of lists, and how many texts of each are used.
    """

    collate: Any
    lists: Mapping[str, int]

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate rows."""
        collated: dict[str, Any] = self.collate([self._columns(row) for row in rows])
        return collated

    def _columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for column, value in row.items():
            texts = value[: self.lists[column]] if column in self.lists else None
            names = [f"{column}_{number}" for number in range(1, len(texts or ()) + 1)]
            found |= {column: value} if texts is None else dict(zip(names, texts, strict=True))
        return found

    def prompts(self, given: Any) -> Any:
        """A trainer's prompts, with that of a column of lists for each of its columns."""
        if not isinstance(given, Mapping):
            return given
        named = {
            f"{column}_{number}": given[column]
            for column, count in self.lists.items()
            for number in range(1, count + 1)
            if column in given
        }
        return {name: self.prompts(prompt) for name, prompt in given.items()} | named
