"""Embeddings in memory-mapped shards, read as one array.

Shards are ranges of rows. They depend only on the number of rows, not on the number of processes.
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
"""Vectors in memory or on disk, indexed by row numbers and slices."""

MOST_ROWS = 16_384
"""Most rows of a shard, so that a killed process repeats little."""
LEAST_ROWS = 512
"""Fewest rows of a shard, so that batches are full."""
SHARDS = 32
"""Shards of a table between these limits, so that several processes can share the work."""


@dataclass(frozen=True)
class Shards:
    """The shards of a table.

    Attributes:
        count: rows of the table.
        size: rows of a shard, except the last; a power of two, so that shards divide tiles of
            65,536 rows.
    """

    count: int
    size: int

    @classmethod
    def of(cls, count: int) -> Shards:
        """Return the shards of a table with ``count`` rows."""
        size = 1 << max(0, -(-count // SHARDS) - 1).bit_length()
        return cls(count, min(max(size, LEAST_ROWS), MOST_ROWS))

    def __len__(self) -> int:
        return max(1, -(-self.count // self.size))

    def names(self, suffix: str) -> list[str]:
        """Return the file names, in order."""
        return [f"{number:06d}{suffix}" for number in range(len(self))]

    def rows(self, number: int) -> slice:
        """Return the rows of a shard."""
        return slice(number * self.size, min((number + 1) * self.size, self.count))

    def by_shard(self, rows: IntArray) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Group rows by shard: its number, the indices in ``rows``, and the rows in the shard."""
        numbers, within = np.divmod(np.asarray(rows, dtype=np.int64), self.size)
        order = np.argsort(numbers, kind="stable")
        bounds = np.flatnonzero(np.diff(numbers[order])) + 1
        groups = np.split(order, bounds) if len(order) else []
        return [(int(numbers[group[0]]), group, within[group]) for group in groups]


class Embeddings:
    """Vectors of a table's rows, memory-mapped from the shards of a folder.

    ``embeddings[rows]`` takes a slice or row numbers in any order, and reads only these rows.

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
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        vectors = np.empty((numbers.size, self.shape[1]), dtype=np.float32)
        for shard, indices, local_rows in self._shards.by_shard(numbers.ravel()):
            vectors[indices] = self._parts[shard][local_rows]
            _release(self._parts[shard])
        return vectors.reshape(*numbers.shape, self.shape[1])

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
    """Free the memory pages of a shard; the system's file cache keeps them."""
    if isinstance(part.base, mmap.mmap):
        part.base.madvise(mmap.MADV_DONTNEED)


def write_shard(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write a shard; its file gets its final name when it is complete."""
    temporary = unfinished(path)
    with temporary.open("wb") as file:
        np.lib.format.write_array(file, vectors, allow_pickle=False)
    temporary.replace(path)
