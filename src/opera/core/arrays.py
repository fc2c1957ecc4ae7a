"""Array types for arguments, of any width; rows brought to length 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer]
FloatArray = NDArray[np.floating]
BoolArray = NDArray[np.bool_]
SHORTEST = 1e-12
"""Rows shorter than this are not brought to length 1."""


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
