"""Rows cut into shards: ranges that depend on the number of rows alone, and not on how many processes write them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray

MOST_ROWS = 16_384
"""Rows of a shard of a large table: what a killed process has to do again at most."""
LEAST_ROWS = 512
"""Rows of a shard of a small table: enough for full batches."""
SHARDS = 32
"""How many a table between has at least, for several processes to share."""


@dataclass(frozen=True)
class Shards:
    """The shards of a table.

    Attributes:
        count: rows of the table.
        size: rows of a shard but the last; a power of two, so that tiles of 65,536 rows hold whole shards.
    """

    count: int
    size: int

    @classmethod
    def of(cls, count: int) -> Shards:
        """Cut a table of ``count`` rows."""
        size = 1 << max(0, -(-count // SHARDS) - 1).bit_length()
        return cls(count, min(max(size, LEAST_ROWS), MOST_ROWS))

    def __len__(self) -> int:
        return max(1, -(-self.count // self.size))

    def names(self, suffix: str) -> list[str]:
        """File names, in order."""
        return [f"{number:06d}{suffix}" for number in range(len(self))]

    def rows(self, number: int) -> slice:
        """The range of a shard."""
        return slice(number * self.size, min((number + 1) * self.size, self.count))

    def by_shard(self, rows: IntArray) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Group rows by shard: its number, where they stand in ``rows``, and which rows of the shard they are."""
        wanted = np.asarray(rows, dtype=np.int64)
        numbers = wanted // self.size
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        places = np.split(order, starts[1:]) if len(found) else []
        return [
            (number, place, wanted[place] - number * self.size)
            for number, place in zip(found.tolist(), places, strict=True)
        ]
