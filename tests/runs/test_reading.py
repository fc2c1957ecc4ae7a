"""Files of runs are read as data: nothing in them is unpickled, and an error names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attacks import Bomb
from opera.core.errors import RunFolderError
from opera.runs.reading import TEXT, WHOLE, read_arrays, read_object, read_table


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "code-ran"
    np.savez(tmp_path / "x.npz", a=np.array([Bomb(mark)], dtype=object))
    with pytest.raises(RunFolderError, match=r"x\.npz: is not as OPERA wrote it: Object arrays"):
        read_arrays(tmp_path / "x.npz")
    assert not mark.exists()


@pytest.mark.parametrize("column", [{}, {"a": ["x"]}, {"a": [0.5]}])
def test_a_table_has_the_columns_of_its_kind(column: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), path)
    assert read_table(path, {"a": WHOLE, "b": TEXT}).num_rows == 1
    pq.write_table(pa.table({**column, "b": ["x"]}), path)
    with pytest.raises(RunFolderError, match=r"x\.parquet: is not as OPERA wrote it: column 'a'"):
        read_table(path, {"a": WHOLE, "b": TEXT})


@pytest.mark.parametrize("read", [read_arrays, read_object, lambda path: read_table(path, {})])
def test_what_is_missing_or_broken_is_named(read: Any, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"x: is missing"):
        read(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"[]")
    with pytest.raises(RunFolderError, match=r"x: is not as OPERA wrote it: "):
        read(tmp_path / "x")
    (tmp_path / "x").unlink()
    (tmp_path / "x").mkdir()
    with pytest.raises(RunFolderError, match=r"x: cannot be read: it is a folder"):
        read(tmp_path / "x")
