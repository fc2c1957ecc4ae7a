"""Embeddings in memory-mapped shards, read as one array.

Shards are ranges of rows. They depend only on the number of rows, not on the number of processes.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray, normalise
from opera.core.files import unfinished
from opera.core.processes import process_index
from opera.core.progress import with_progress

SUFFIX = ".npy"

Vectors: TypeAlias = "NDArray[np.float32] | Embeddings | Any"
"""Rows in memory or on disk, indexed by row numbers and slices; of dense models, vectors."""

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
    def of(cls, count: int, most_rows: int = MOST_ROWS) -> Shards:
        """Return the shards of a table with ``count`` rows, each with at most ``most_rows``."""
        size = 1 << max(0, -(-count // SHARDS) - 1).bit_length()
        return cls(count, min(max(size, LEAST_ROWS), most_rows))

    def __len__(self) -> int:
        return max(1, -(-self.count // self.size))

    def names(self, suffix: str = SUFFIX) -> list[str]:
        """Return the file names, in order."""
        return [f"{number:06d}{suffix}" for number in range(len(self))]

    def rows(self, number: int) -> slice:
        """Return the rows of a shard."""
        return slice(number * self.size, min((number + 1) * self.size, self.count))

    def parts(self, rows: slice) -> Iterator[tuple[int, int, slice]]:
        """Yield the shards that hold some of the rows: a shard's number, the first of these rows,
        and the rows in the shard."""
        for number in range(rows.start // self.size, -(-rows.stop // self.size)):
            shard = self.rows(number)
            first, last = max(rows.start, shard.start), min(rows.stop, shard.stop)
            yield number, first, slice(first - shard.start, last - shard.start)

    def by_shard(self, rows: IntArray) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Group rows by shard: its number, the indices in ``rows``, and the rows in the shard."""
        numbers, within = np.divmod(np.asarray(rows, dtype=np.int64), self.size)
        order = np.argsort(numbers, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []
        return [(int(numbers[group[0]]), group, within[group]) for group in groups]


class Embeddings:
    """Vectors of a table's rows, memory-mapped from the shards of a folder.

    ``embeddings[rows]`` takes a slice or row numbers in any order, and reads only these rows.

    Attributes:
        shape: rows and dimension.
        shards: the ranges of rows.
    """

    def __init__(self, folder: Path, shards: Shards) -> None:
        self._parts = [np.load(folder / name, mmap_mode="c") for name in shards.names()]
        self.shards, self.shape = shards, (shards.count, int(self._parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __getitem__(self, rows: slice | IntArray) -> NDArray[np.float32]:
        if isinstance(rows, slice) and rows.step is None:
            return self._range(*rows.indices(len(self))[:2])
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        vectors = np.empty((numbers.size, self.shape[1]), dtype=np.float32)
        for shard, indices, local_rows in self.shards.by_shard(numbers.ravel()):
            vectors[indices] = self._parts[shard][local_rows]
            _release(self._parts[shard])
        return vectors.reshape(*numbers.shape, self.shape[1])

    def within_shards(self, rows: slice) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield the part of each shard that has some of the rows, with its first row. A part of a
        large shard is not copied.

        Callers must not change a part, nor use it after the next one.
        """
        if self.shards.size < LEAST_TILE:
            yield rows.start, self[rows]
            return
        for number, first, local_rows in self.shards.parts(rows):
            yield first, self._parts[number][local_rows]
            _release(self._parts[number])

    def _range(self, start: int, stop: int) -> NDArray[np.float32]:
        vectors = np.empty((max(0, stop - start), self.shape[1]), dtype=np.float32)
        for number, first, local_rows in self.shards.parts(slice(start, stop)):
            part = self._parts[number][local_rows]
            vectors[first - start : first - start + len(part)] = part
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


TILE_BYTES = 2**26
"""Size of the embeddings that are read at once."""
LEAST_TILE = 2048
"""Smaller shards are copied into one tile."""


def tiles(
    documents: Vectors, share: slice, n_queries: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield each tile of a range of the corpus with its first row. A long search shows progress.

    A tile of a large table on disk is part of a shard, and is not copied.
    """
    size = max(1, TILE_BYTES // row_bytes(documents))
    starts = range(share.start, share.stop, size)
    hidden = n_queries * len(documents) < 2e9 or process_index() > 0
    for first in with_progress(starts, "searching", len(starts), "parts", hidden=hidden):
        rows = slice(first, min(first + size, share.stop))
        if hasattr(documents, "within_shards"):
            yield from documents.within_shards(rows)
        else:
            yield first, documents[rows]


def row_bytes(documents: Vectors) -> int:
    """Return the mean size of a row in memory."""
    return max(1, int(getattr(documents, "bytes_per_row", 4 * documents.shape[1])))


def first_dimensions(
    embeddings: NDArray[np.float32], size: int, length_1: bool = True
) -> NDArray[np.float32]:
    """Cut embeddings ``[n, dimension]`` to their first ``size`` values, scaled to length 1."""
    if size == embeddings.shape[1]:
        return embeddings
    cut = np.array(embeddings[:, :size])
    if length_1:
        normalise(cut)
    return cut
