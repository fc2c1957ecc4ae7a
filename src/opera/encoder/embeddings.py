"""Embeddings in memory-mapped shards, read as one array.

Shards are ranges of rows that depend on the number of rows alone, and not on how many processes
write them.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.files import unfinished

SUFFIX = ".npy"

Vectors: TypeAlias = "NDArray[np.float32] | Embeddings"
"""What is read by row numbers and slices, in memory or on disk."""


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
        size: rows of a shard but the last; a power of two, so that tiles of 65,536 rows hold whole
            shards.
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
        """Group rows by shard: its number, their places in ``rows``, and their rows in it."""
        numbers, within = np.divmod(np.asarray(rows, dtype=np.int64), self.size)
        order = np.argsort(numbers, kind="stable")
        bounds = np.flatnonzero(np.diff(numbers[order])) + 1
        groups = np.split(order, bounds) if len(order) else []
        return [(int(numbers[places[0]]), places, within[places]) for places in groups]


class Embeddings:
    """Vectors of a table's rows, memory-mapped from the shards of a folder.

    ``embeddings[rows]`` takes a slice or row numbers from 0 on, in any order, and copies nothing
    else into memory.

    Attributes:
        shape: rows and dimension.
    """

    def __init__(self, folder: Path, shards: Shards) -> None:
        self._parts = [np.load(folder / name, mmap_mode="r") for name in shards.names(SUFFIX)]
        self._shards, self.shape = shards, (shards.count, int(self._parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __getitem__(self, rows: slice | IntArray) -> NDArray[np.float32]:
        if isinstance(rows, slice) and rows.step is None:
            return self._range(*rows.indices(len(self))[:2])
        wanted = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        vectors = np.empty((wanted.size, self.shape[1]), dtype=np.float32)
        for number, places, local in self._shards.by_shard(wanted.ravel()):
            vectors[places] = self._parts[number][local]
            _release(self._parts[number])
        return vectors.reshape(*wanted.shape, self.shape[1])

    def _range(self, start: int, stop: int) -> NDArray[np.float32]:
        vectors = np.empty((max(0, stop - start), self.shape[1]), dtype=np.float32)
        size = self._shards.size
        for number in range(start // size, -(-stop // size)):
            rows = self._shards.rows(number)
            first, last = max(start, rows.start), min(stop, rows.stop)
            part = self._parts[number][first - rows.start : last - rows.start]
            vectors[first - start : last - start] = part
            _release(self._parts[number])
        return vectors


def _release(part: NDArray[np.float32]) -> None:
    """Let go of what was read of a shard; it stays in the system's cache."""
    if isinstance(part.base, mmap.mmap):
        part.base.madvise(mmap.MADV_DONTNEED)


def write_shard(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write the vectors of a shard; the file has its name when it is complete."""
    temporary = unfinished(path)
    with temporary.open("wb") as file:
        np.lib.format.write_array(file, vectors, allow_pickle=False)
    temporary.replace(path)


def shard_number(name: str) -> int:
    """The number of the shard that a file holds."""
    return int(name.partition(".")[0])
