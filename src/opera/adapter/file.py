"""``adapter.npz``: an adapter of vectors from a service, as NumPy arrays, and the module that is saved beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opera.core.errors import DataError, ModelError
from opera.core.files import replace_file
from opera.core.paths import user_path
from opera.core.reading import open_file
from opera.core.terminal import printable, shortened, shown
from opera.runs.folder import ADAPTER_FILE, MODEL_FOLDER

MODULE_FILE = "adapter.py"
ROLES = ("query", "document")

MODULE = '''"""Apply the adapter beside this file to vectors [n, d] of the service; needs NumPy alone."""

from pathlib import Path

import numpy as np

MATRICES = dict(np.load(Path(__file__).with_name("adapter.npz")))


def apply(vectors, role):
    moved = np.atleast_2d(np.asarray(vectors, dtype=np.float64))
    with np.errstate(all="ignore"):  # what is not a number is looked for below
        if role in MATRICES:
            moved = moved @ MATRICES[role].T
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
    if bad.size:
        raise ValueError(f"vectors: row {bad[0]} is zero, too long, or holds a value that is not a number")
    return (moved / lengths).astype(np.float32)


def queries(vectors):
    return apply(vectors, "query")


def documents(vectors):
    return apply(vectors, "document")
'''


@dataclass(frozen=True)
class NumpyAdapter:
    """An adapter, ready to apply.

    Attributes:
        matrices: float32 ``[d, d]`` for each role that is projected, ``query`` and ``document``: I + W.
    """

    matrices: Mapping[str, NDArray[np.float32]]

    def queries(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Adapt query vectors: float32 ``[n, d]``, rows of length 1.

        Raises:
            DataError: for a vector without a direction.
        """
        return self._apply(vectors, "query")

    def documents(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Adapt document vectors; as :meth:`queries`."""
        return self._apply(vectors, "document")

    def _apply(self, vectors: ArrayLike, role: str) -> NDArray[np.float32]:
        moved = np.atleast_2d(
            np.asarray(vectors, dtype=np.float64)
        )  # which holds the squares of all float32
        with np.errstate(all="ignore"):  # what is no number is looked for below
            if role in self.matrices:
                moved = moved @ self.matrices[role].T
            lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        bad = np.flatnonzero(~(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
        if bad.size:
            raise DataError(
                f"vectors: row {bad[0]} is zero, too long, or holds a value that is not a number"
            )
        return np.asarray(moved / lengths, dtype=np.float32)


def load(path: str | Path) -> NumpyAdapter:
    """Load an adapter.

    Args:
        path: a run folder, its ``model`` folder, or an ``adapter.npz``.

    Raises:
        ModelError: if there is no adapter, or it cannot be read or holds something else.
    """
    given = user_path(path, "path")
    place = next(
        (
            p
            for p in (given, given / ADAPTER_FILE, given / MODEL_FOLDER / ADAPTER_FILE)
            if p.is_file()
        ),
        None,
    )
    if place is None:
        raise ModelError(
            f"{path}: holds no {ADAPTER_FILE}; the adapter of a sentence-transformers model is part of it: load "
            "RUN/model with SentenceTransformer"
        )
    try:
        with open_file(place) as file, np.load(file, allow_pickle=False) as arrays:
            matrices = {role: arrays[role] for role in arrays.files}
    except Exception as error:  # NumPy and zipfile raise many types on a spoilt file
        reason = shortened(printable(" ".join(str(error).split()))) or type(error).__name__
        raise ModelError(f"{place}: is not an adapter that can be read ({reason})") from None
    _check(matrices, place)
    return NumpyAdapter(matrices)


def _check(matrices: Mapping[str, NDArray[Any]], place: Path) -> None:
    for role, matrix in matrices.items():
        if role not in ROLES:
            raise ModelError(
                f"{place}: must hold matrices named {' and '.join(ROLES)}, got {shown(role)}"
            )
        if matrix.dtype != np.float32 or matrix.ndim != 2 or len(set(matrix.shape)) != 1:
            got = f"{list(matrix.shape)} of {matrix.dtype}"
            raise ModelError(
                f"{place}: the matrix '{role}' must be [d, d] of float32, got {shortened(got)}"
            )
        if not np.isfinite(matrix).all():
            raise ModelError(f"{place}: the matrix '{role}' holds values that are no numbers")
    if len({len(matrix) for matrix in matrices.values()}) != 1:
        raise ModelError(f"{place}: must hold one matrix, or two of one size")


def save(folder: Path, matrices: Mapping[str, NDArray[np.float32]]) -> None:
    """Write ``adapter.npz`` and the module that applies it."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **dict[str, Any](matrices))

    replace_file(folder / ADAPTER_FILE, write)
    replace_file(folder / MODULE_FILE, lambda path: path.write_text(MODULE, encoding="utf-8"))
