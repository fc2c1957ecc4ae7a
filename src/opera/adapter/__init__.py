"""``adapter.npz``, the adapter for vectors from a service, and its module; needs no torch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opera.adapter.apply import apply
from opera.core.errors import DataError, ModelError
from opera.core.files import replace_file
from opera.core.paths import user_path
from opera.core.reading import open_file
from opera.core.terminal import printable, shortened
from opera.runs.folder import ADAPTER_FILE, MODEL_FOLDER

MODULE_FILE = "adapter.py"
ROLES = ("query", "document")


@dataclass(frozen=True)
class NumpyAdapter:
    """An adapter to apply to vectors.

    Attributes:
        matrices: I + W, float32 ``[d, d]``, by role: ``query``, ``document``.
    """

    matrices: Mapping[str, NDArray[np.float32]]

    def queries(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Adapt query vectors: float32 ``[n, d]``, rows of length 1.

        Raises:
            DataError: for a zero vector or a value that is not finite.
        """
        return self._apply(vectors, "query")

    def documents(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Adapt document vectors, like :meth:`queries`."""
        return self._apply(vectors, "document")

    def _apply(self, vectors: ArrayLike, role: str) -> NDArray[np.float32]:
        try:
            return np.asarray(apply(vectors, role, self.matrices))
        except ValueError as error:
            raise DataError(str(error)) from None


def load(path: str | Path) -> NumpyAdapter:
    """Load an adapter.

    Args:
        path: a run folder, its ``model`` folder, or an ``adapter.npz``.

    Raises:
        ModelError: if there is no valid adapter.
    """
    folder = user_path(path, "path")
    paths = (folder, folder / ADAPTER_FILE, folder / MODEL_FOLDER / ADAPTER_FILE)
    file = next((path for path in paths if path.is_file()), None)
    if file is None:
        raise ModelError(
            f"{path}: has no {ADAPTER_FILE}; if the base is a sentence-transformers model, load "
            "RUN/model with SentenceTransformer, which includes the adapter"
        )
    try:
        with open_file(file) as opened, np.load(opened, allow_pickle=False) as arrays:
            matrices = dict(arrays)
    except Exception as error:  # NumPy and zipfile raise many types for a damaged file
        reason = shortened(printable(" ".join(str(error).split()))) or type(error).__name__
        raise ModelError(f"{file}: cannot be read as an adapter ({reason})") from None
    _check(matrices, file)
    return NumpyAdapter(matrices)


def _check(matrices: Mapping[str, NDArray[Any]], file: Path) -> None:
    shapes = {matrix.shape for matrix in matrices.values()}
    square = len(shapes) == 1 and all(len(shape) == 2 == 1 + len(set(shape)) for shape in shapes)
    finite = all(m.dtype == np.float32 and np.isfinite(m).all() for m in matrices.values())
    if not (square and finite and matrices.keys() <= set(ROLES)):
        got = ", ".join(f"'{role}' {list(m.shape)} of {m.dtype}" for role, m in matrices.items())
        raise ModelError(
            f"{file}: must hold finite float32 matrices [d, d] of one size, named query or "
            f"document, got {shortened(printable(got)) or 'nothing'}"
        )


def save(folder: Path, matrices: Mapping[str, NDArray[np.float32]]) -> None:
    """Write ``adapter.npz`` and the module that applies it."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **dict[str, Any](matrices))

    replace_file(folder / ADAPTER_FILE, write)
    module = Path(__file__).with_name("apply.py")
    replace_file(folder / MODULE_FILE, lambda path: shutil.copyfile(module, path))
