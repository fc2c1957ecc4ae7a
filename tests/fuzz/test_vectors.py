"""Vector files and adapters: spoilt ones are read whole or refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from fuzzing import BYTES, only_refusals, spoilt, workplace
from opera.adapter import load
from opera.adapter.vectors import FileVectors
from opera.data import TextTable

IDS = ["a", "b", "c", "more"]
TABLE = TextTable.from_texts(dict.fromkeys(IDS[:3], "text"))
VECTORS = np.array([[3, 0], [0, 2], [1, 1], [5, 5]], dtype=np.float32)


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, VECTORS)
    return file.getvalue()


def parquet(compression: str) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"id": IDS, "vector": list(VECTORS)}), file, compression=compression)
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, query=np.eye(3, dtype=np.float32), document=np.eye(3, dtype=np.float32))
    return file.getvalue()


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }"
HEADERS = st.lists(st.sampled_from([*BYTES, b"'descr': ", b"'<f8'", b"'O'", b"(2, 4)", b"'shape': (10**9, 9)"])).map(
    lambda parts: npy().replace(HEADER, b"".join(parts)[: len(HEADER)].ljust(len(HEADER)))
)


def is_read(path: Any) -> None:
    found = FileVectors(path, TABLE, "query")[np.arange(len(TABLE))]
    assert found.shape[0] == len(TABLE)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)  # rounded to float32


@given(spoilt(npy()) | HEADERS, st.just(b"a\nb\nc\nmore\n") | spoilt(b"a\nb\nc\nmore\n"))
def test_arrays(content: bytes, ids: bytes) -> None:
    with workplace() as folder, only_refusals(lambda message: message.startswith(str(folder))):
        (folder / "v.npy").write_bytes(content)
        (folder / "v.txt").write_bytes(ids)
        is_read(folder / "v.npy")


@given(st.sampled_from(["none", "snappy"]).map(parquet).flatmap(spoilt))
def test_parquet_files(content: bytes) -> None:
    with workplace() as folder, only_refusals(lambda message: message.startswith(str(folder))):
        (folder / "v.parquet").write_bytes(content)
        is_read(folder / "v.parquet")


@given(spoilt(npz()))
def test_adapters(content: bytes) -> None:
    with workplace() as folder, only_refusals(lambda message: message.startswith(str(folder))):
        (folder / "adapter.npz").write_bytes(content)
        adapter = load(folder)
        assert adapter.queries(np.ones(3)).shape == (1, 3) or adapter.documents(np.ones(3)).shape == (1, 3)
