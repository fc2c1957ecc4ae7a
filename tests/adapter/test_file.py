"""The adapter as a file of NumPy arrays."""

from __future__ import annotations

import pickle
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
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["queries"], load(folder).queries(x))
        np.testing.assert_array_equal(found["documents"], load(folder).documents(x))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, 1e200])
def test_a_vector_without_a_direction_is_named(value: float, folder: Path) -> None:
    vectors = np.ones((3, 6))
    vectors[1] = value
    module = {"__file__": str(folder / "adapter.py")}
    exec((folder / "adapter.py").read_text(), module)
    adapter = load(folder)
    for apply, error in (
        (adapter.queries, DataError), (adapter.documents, DataError),
        (module["queries"], ValueError), (module["documents"], ValueError),
    ):  # fmt: skip
        with pytest.raises(error, match="vectors: row 1 is zero, too long, or has a value that is not a number"):
            apply(vectors)


def test_spoilt_files_are_explained(folder: Path) -> None:
    path = folder / "adapter.npz"
    eye = np.eye(3, dtype=np.float32)
    for arrays, got in (
        ({"query": eye[:2]}, r"'query' \[2, 3\] of float32"),
        ({"query": eye.astype(int)}, r"'query' \[3, 3\] of int64"),
        ({"query": eye * np.float32("nan")}, "'query'"),
        ({"other": eye}, "'other'"),
        ({"query": eye, "document": np.eye(2, dtype=np.float32)}, r"'document' \[2, 2\] of float32"),
        ({}, "nothing"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ModelError, match=f"must hold finite float32 matrices .*, got .*{got}"):
            load(folder)
    np.savez(path, query=np.array(None))
    with pytest.raises(ModelError, match=r"cannot be read as an adapter \(Object arrays cannot be loaded"):
        load(folder)
    for content in (b"", b"PK\x03\x04 no archive", pickle.dumps({})):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"adapter\.npz: cannot be read as an adapter"):
            load(folder)
