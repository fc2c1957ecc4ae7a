"""The adapter as a file of NumPy arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opera.adapter import load, save
from opera.core.errors import DataError, ModelError
from small_runs import unit_vectors

USER = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import adapter
x = np.load(sys.argv[2])
np.savez(sys.argv[3], queries=adapter.queries(x), documents=adapter.documents(x))
print([name for name in ("torch", "opera", "sentence_transformers") if name in sys.modules])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    save(tmp_path, {"query": np.eye(6, dtype=np.float32) + rng.normal(size=(6, 6)).astype(np.float32)})
    return tmp_path


def test_queries_are_projected_and_documents_only_normalised(folder: Path) -> None:
    adapter, x = load(folder), 3 * unit_vectors(np.random.default_rng(1), 5, 6)
    with np.load(folder / "adapter.npz") as arrays:
        expected = x @ arrays["query"].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(adapter.queries(x), expected, atol=1e-6)  # the same sums of 6 terms
    np.testing.assert_allclose(adapter.documents(x), x / 3, atol=1e-6)
    assert adapter.queries(x[0]).shape == (1, 6)


def test_the_module_beside_it_needs_numpy_alone(folder: Path, tmp_path: Path) -> None:
    x = unit_vectors(np.random.default_rng(1), 5, 6)
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-I", "-c", USER, *(str(tmp_path / name) for name in ("", "x.npy", "out.npz"))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[]\n"
    with np.load(tmp_path / "out.npz") as projected:
        np.testing.assert_array_equal(projected["queries"], load(folder).queries(x))
        np.testing.assert_array_equal(projected["documents"], load(folder).documents(x))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, 1e200])
def test_a_vector_without_a_direction_is_named(value: float, folder: Path) -> None:
    vectors = np.ones((3, 6))
    vectors[1] = value
    module = {"__file__": str(folder / "adapter.py")}
    exec((folder / "adapter.py").read_text(), module)
    adapter = load(folder)
    for project in (adapter.queries, adapter.documents):
        with pytest.raises(DataError, match="row 1"):
            project(vectors)
    for name in ("queries", "documents"):
        with pytest.raises(ValueError, match="row 1"):
            module[name](vectors)


@pytest.mark.parametrize(
    "arrays",
    [
        {"query": np.eye(2, 3, dtype=np.float32)},
        {"query": np.eye(3, dtype=np.float32) * np.float32("nan")},
        {"other": np.eye(3, dtype=np.float32)},
        {},
        {"query": np.array(None)},  # would be unpickled
    ],
)
def test_a_file_that_is_no_adapter_is_refused(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "adapter.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ModelError):
        load(tmp_path)
