"""Array types for arguments, of any width, and arrays that are written piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer]
FloatArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]
SHORTEST = 1e-12
"""Rows shorter than this are not brought to length 1."""


def save_rows(path: Path, parts: Iterable[NDArray[np.float32]], rows: int, dimension: int) -> None:
    """Write a float32 ``.npy`` file from parts of its rows, in order.

    A full disk is an error here. In a memory-mapped file it would end the process without a word.
    """
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, dimension)})
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype=np.float32).data)


def normalise(rows: NDArray[np.float32]) -> IntArray:
    """Bring rows to length 1 in place; a row of zeros, of a text without a token, stays.

    Returns:
        The rows that have no length of 1, because float32 cannot hold the square of what they were.
    """
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    short = lengths[:, 0] < SHORTEST
    bad = ~np.isfinite(lengths[:, 0])
    bad[short] = rows[short].any(axis=1)
    rows /= np.maximum(lengths, SHORTEST)
    return np.flatnonzero(bad)
