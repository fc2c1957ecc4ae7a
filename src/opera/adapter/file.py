"""``adapter.npz``: an adapter of vectors from a service, as NumPy arrays, and the module that is saved beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opera.core.errors import ModelError
from opera.core.files import replace_file
from opera.runs.folder import ADAPTER_FILE, MODEL_FOLDER

MODULE_FILE = "adapter.py"

MODULE = '''"""Apply the adapter beside this file to vectors [n, d] of the service; needs NumPy alone."""

from pathlib import Path

import numpy as np

MATRICES = dict(np.load(Path(__file__).with_name("adapter.npz")))


def apply(vectors, role):
    moved = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
    if role in MATRICES:
        moved = moved @ MATRICES[role].T
    return moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)


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
        """Adapt query vectors: float32 ``[n, d]``, rows of length 1."""
        return self._apply(vectors, "query")

    def documents(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Adapt document vectors: float32 ``[n, d]``, rows of length 1."""
        return self._apply(vectors, "document")

    def _apply(self, vectors: ArrayLike, role: str) -> NDArray[np.float32]:
        moved = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        if role in self.matrices:
            moved = moved @ self.matrices[role].T
        lengths = np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
        return np.asarray(moved / lengths, dtype=np.float32)


def load(path: str | Path) -> NumpyAdapter:
    """Load an adapter.

    Args:
        path: a run folder, its ``model`` folder, or an ``adapter.npz``.

    Raises:
        ModelError: if there is no adapter.
    """
    given = Path(path)
    for place in (given, given / ADAPTER_FILE, given / MODEL_FOLDER / ADAPTER_FILE):
        if place.is_file():
            with np.load(place) as arrays:
                return NumpyAdapter({role: arrays[role] for role in arrays.files})
    raise ModelError(
        f"{path}: holds no {ADAPTER_FILE}; the adapter of a sentence-transformers model is part of it: load RUN/model "
        "with SentenceTransformer"
    )


def save(folder: Path, matrices: Mapping[str, NDArray[np.float32]]) -> None:
    """Write ``adapter.npz`` and the module that applies it."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **dict[str, Any](matrices))

    replace_file(folder / ADAPTER_FILE, write)
    replace_file(folder / MODULE_FILE, lambda path: path.write_text(MODULE, encoding="utf-8"))
