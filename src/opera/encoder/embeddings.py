"""Embeddings in memory-mapped shards, read as one array."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.cache import seal
from opera.encoder.shards import Shards

StoredAs = Literal["fp32", "fp16"]
DTYPES: dict[StoredAs, type[np.floating[Any]]] = {"fp32": np.float32, "fp16": np.float16}
SUFFIX = ".npy"

Vectors: TypeAlias = "NDArray[np.float32] | Embeddings"
"""What is read by row numbers and slices, in memory or on disk."""


class Embeddings:
    """Vectors of a table's rows, read from shards as float32 whatever they are stored as.

    ``embeddings[rows]`` takes a slice or row numbers. Nothing but what is asked for is read into memory; ``np.asarray``
    reads all.

    Args:
        parts: arrays ``[rows, dimension]`` of float32 or float16, all of ``shards.size`` rows but the last.
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
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            return (
                self._range(start, max(start, stop))
                if step == 1
                else self.rows(np.arange(start, stop, step))
            )
        return self.rows(rows)

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

    def _range(self, start: int, stop: int) -> NDArray[np.float32]:
        """Read a range; what is in memory already is not copied if it lies in one shard."""
        size, last = self._shards.size, len(self._shards) - 1
        first, end = min(start // size, last), min(max(start, stop - 1) // size, last)
        pieces = [
            _read(self._parts[number], max(0, start - number * size), max(0, stop - number * size))
            for number in range(first, end + 1)
        ]
        if len(pieces) == 1:
            return np.asarray(pieces[0], dtype=np.float32)
        return np.concatenate(pieces, dtype=np.float32)


def _read(part: NDArray[np.floating[Any]], start: int, stop: int) -> NDArray[np.floating[Any]]:
    """Read some rows of a shard. From a file they are copied: no more of it stays in memory than is asked for."""
    rows = part[start:stop]
    if not isinstance(part, np.memmap) or not rows.size:
        return np.asarray(rows)
    width = part.shape[1]
    offset = part.offset + start * width * part.itemsize
    return np.fromfile(
        str(part.filename), dtype=part.dtype, count=rows.size, offset=offset
    ).reshape(len(rows), width)


def _release(part: NDArray[np.floating[Any]]) -> None:
    """Let go of what was read of a memory-mapped shard; it stays in the system's cache, and may be read again."""
    if isinstance(part, np.memmap) and isinstance(part.base, mmap.mmap):
        part.base.madvise(mmap.MADV_DONTNEED)


def as_embeddings(vectors: Vectors) -> Embeddings:
    """Wrap an array; embeddings stay what they are."""
    return vectors if isinstance(vectors, Embeddings) else Embeddings.of(vectors)


def write_shard(path: Path, vectors: NDArray[np.float32], stored_as: StoredAs) -> None:
    """Write the vectors of a shard, and seal it."""
    with path.open("wb") as file:
        np.lib.format.write_array(
            file, vectors.astype(DTYPES[stored_as], copy=False), allow_pickle=False
        )
    seal(path)


def shard_number(name: str) -> int:
    """The number of the shard that a file holds."""
    return int(name.removesuffix(SUFFIX))
