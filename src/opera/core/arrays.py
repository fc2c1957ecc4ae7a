"""Types of arrays, slices of rows, rows scaled to length 1, and functions that numba compiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer]
FloatArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]
T = TypeVar("T")
"""Any type."""
Scalar = TypeVar("Scalar", bound=np.generic)
SHORTEST = 1e-12
"""Shorter rows are not scaled to length 1."""


def slices(count: int, size: int) -> Iterator[slice]:
    """Cut ``count`` rows into slices of ``size``; the last may be shorter."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def concatenated_ranges(first: IntArray, counts: IntArray) -> NDArray[np.int64]:
    """Return ``first[0]``, ``first[0] + 1``, ... (``counts[0]`` numbers), then those of the next
    range: int64.
    """
    begins = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(first - begins, counts)


def distinct_numbers(values: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the different numbers, ascending.

    ``np.unique`` does the same, but takes up to 80 times as long for ten million numbers, since
    NumPy 2.3 counts them by a hash.
    """
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def is_among(values: IntArray, keys: IntArray) -> BoolArray:
    """Return whether each number is one of ``keys``: bool in the shape of ``values``.

    For pair keys, ``np.isin`` does the same, but calls ``np.unique``. For row numbers it is faster.
    """
    return is_among_ascending(values, np.sort(keys))


def is_among_ascending(values: IntArray, keys: IntArray) -> BoolArray:
    """Return what :func:`is_among` does, for keys in ascending order."""
    if len(keys) == 0:
        return np.zeros(np.shape(values), dtype=bool)
    positions = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.asarray(keys[positions] == values)


def normalise(rows: NDArray[np.float32]) -> IntArray:
    """Scale rows to length 1 in place. A row of zeros (a text without tokens) stays.

    Returns:
        The rows that cannot be scaled, because float32 cannot hold the square of their length.
    """
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    short = lengths[:, 0] < SHORTEST
    bad = ~np.isfinite(lengths[:, 0])
    bad[short] = rows[short].any(axis=1)
    rows /= np.maximum(lengths, SHORTEST)
    return np.flatnonzero(bad)


def cached_njit(**options: Any) -> Any:
    """``njit`` with a cache on disk, or without it if numba finds no writable folder."""
    from numba import config, njit  # here, since numba takes long to import

    if config.THREADING_LAYER_PRIORITY[0] == "tbb":  # numba's default, not a user's choice
        # torch uses OpenMP; numba then shares its threads.
        config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]

    def compiled(function: Any) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # no writable folder; every process compiles
            return njit(**options)(function)

    return compiled


def use_torch_threads() -> None:
    """Let numba use as many threads as torch."""
    import numba
    import torch

    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    if torch.get_num_threads() != threads:  # numba's start sets OpenMP to all cores
        torch.set_num_threads(threads)
