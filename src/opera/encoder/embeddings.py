"""Embeddings in memory-mapped shards, read as one array.

Shards are ranges of rows that depend on the number of rows alone, and not on how many processes
write them.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.cache import seal

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
        """Group rows by shard: its number, where they stand in ``rows``, and which rows of the
        shard they are.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        numbers = wanted // self.size
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        places = np.split(order, starts[1:]) if len(found) else []
        return [
            (number, place, wanted[place] - number * self.size)
            for number, place in zip(found.tolist(), places, strict=True)
        ]


class Embeddings:
    """Vectors of a table's rows, read from shards.

    ``embeddings[rows]`` takes a slice or row numbers. Nothing but what is asked for is read into
    memory; ``np.asarray`` reads all.

    Args:
        parts: float32 arrays ``[rows, dimension]``, all of ``shards.size`` rows but the last.
        shards: how the rows are cut.

    Attributes:
        shape: rows and dimension.
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, parts: Sequence[NDArray[np.floating[Any]]], shards: Shards) -> None:
        self._parts, self._shards = parts, shards
        self.shape = (shards.count, int(parts[0].shape[1]))

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> Embeddings:
        """Wrap an array, as one shard."""
        return cls([vectors], Shards(len(vectors), max(1, len(vectors))))

    @classmethod
    def open(cls, folder: Path, shards: Shards) -> Embeddings:
        """Memory-map the shards of a folder."""
        return cls([np.load(folder / name, mmap_mode="r") for name in shards.names(SUFFIX)], shards)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.shape[1]

    def __getitem__(self, rows: slice | IntArray) -> NDArray[np.float32]:
        first = self._parts[0]
        # A view of a file that is mapped would end the process where the file is cut: it is copied.
        if isinstance(rows, slice) and len(self._parts) == 1 and not isinstance(first, np.memmap):
            return np.asarray(first[rows], dtype=np.float32)
        return self.rows(np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def rows(self, indices: IntArray) -> NDArray[np.float32]:
        """Gather rows by number, in any order: float32 ``[*indices.shape, dimension]``."""
        wanted = np.asarray(indices)
        if wanted.dtype == bool:
            wanted = np.flatnonzero(wanted)
        if wanted.size and not -len(self) <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"rows must be below {len(self)}")
        flat = np.where(wanted < 0, wanted + len(self), wanted).ravel()
        found = np.empty((flat.size, self.dimension), dtype=np.float32)
        for number, places, local in self._shards.by_shard(flat):
            found[places] = self._parts[number][local]
            _release(self._parts[number])
        return found.reshape(*wanted.shape, self.dimension)


def _release(part: NDArray[np.floating[Any]]) -> None:
    """Let go of what was read of a memory-mapped shard; it stays in the system's cache, and may be
    read again.
    """
    if isinstance(part, np.memmap) and isinstance(part.base, mmap.mmap):
        part.base.madvise(mmap.MADV_DONTNEED)


def write_shard(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write the vectors of a shard, and seal it."""
    with path.open("wb") as file:
        np.lib.format.write_array(file, vectors, allow_pickle=False)
    seal(path)


def shard_number(name: str) -> int:
    """The number of the shard that a file holds."""
    return int(name.removesuffix(SUFFIX))
