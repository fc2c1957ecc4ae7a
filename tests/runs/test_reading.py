"""Files of runs are read whole, within bounds, and without running or unpickling anything in them."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opera.core.errors import RunFolderError
from opera.runs import reading
from opera.runs.reading import read_arrays, read_object, read_table


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "a/b": np.arange(6, dtype=np.int32).reshape(2, 3),
        "column": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.zeros((0, 4), dtype=np.uint8),
        "one": np.array(7),
        "flag": np.array([True, False]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        found = read_arrays(tmp_path / "x.npz")
        assert found.keys() == arrays.keys()
        for name, values in arrays.items():
            assert found[name].dtype == values.dtype
            assert np.array_equal(found[name], values)
            assert found[name].flags.writeable


def header(shape: str, dtype: str = "<f8") -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue().replace(b"(3,)", shape.encode()).replace(b"<f8", dtype.encode())


@pytest.mark.parametrize(
    "content",
    [
        header("(999999999999,)"),
        header("(-3,)"),
        header("(4,)"),
        header("(3,)", "|O8"),
        header("(3,)")[:-1],
        b"\x93NUMPY\x03\x00" + header("(3,)")[8:],
        b"",
        b"(__import__('os').system('true'),)",
    ],
)
def test_headers_that_lie_take_no_memory(tmp_path: Path, content: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(RunFolderError, match=r"x\.npz: is not as OPERA wrote it: "):
        read_arrays(tmp_path / "x.npz")


READERS: dict[str, Any] = {"x.parquet": lambda path: read_table(path, {}), "x.npz": read_arrays, "x.json": read_object}


@pytest.mark.parametrize("name", READERS)
def test_sizes_are_bounded_and_files_that_may_not_be_read_are_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second as those of a colleague; root may read everything, so opening is made to fail."""
    pq.write_table(pa.table({"a": np.zeros(50, dtype=np.int64)}), tmp_path / "x.parquet")
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(10_000))
    (tmp_path / "x.json").write_text("{}" + " " * 100)
    READERS[name](tmp_path / name)
    for bound in ("MAX_ROWS", "MAX_ARRAYS", "MAX_JSON"):
        monkeypatch.setattr(reading, bound, 20)
    with pytest.raises(RunFolderError, match=rf"{name}: is not as OPERA wrote it: (claims|larger)"):
        READERS[name](tmp_path / name)

    def refuse(path: object, *arguments: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(reading, "MAX_JSON", 2**20)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RunFolderError, match=rf"{name}: cannot be read: permission denied"):
        READERS[name](tmp_path / name)
