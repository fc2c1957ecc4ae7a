"""Apply the adapter next to this file to vectors [n, d] of the service; needs NumPy."""

from pathlib import Path
from typing import Any

import numpy as np

MATRICES = dict(np.load(Path(__file__).with_name("adapter.npz")))


def apply(vectors: Any, role: str) -> Any:
    """Multiply vectors by the matrix of a role, and normalise them to length 1."""
    adapted = np.atleast_2d(np.asarray(vectors, dtype=np.float64))
    with np.errstate(all="ignore"):  # the check below finds values that are not finite
        if role in MATRICES:
            adapted = adapted @ MATRICES[role].T
        lengths = np.linalg.norm(adapted, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
    if bad.size:
        raise ValueError(
            f"vectors: row {bad[0]} is zero, too long, or has a value that is not a number"
        )
    return (adapted / lengths).astype(np.float32)


def queries(vectors: Any) -> Any:
    """Apply the adapter to vectors of queries."""
    return apply(vectors, "query")


def documents(vectors: Any) -> Any:
    """Apply the adapter to vectors of documents."""
    return apply(vectors, "document")
