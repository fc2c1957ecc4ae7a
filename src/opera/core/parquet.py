"""Write Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.files import replace_file


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table to a Parquet file, whole or not at all.

    Arrow is given an open file: it takes a path such as ``run:1/pairs.parquet`` for an address on a network.

    Raises:
        StorageError: if it cannot be written.
    """

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            pq.write_table(table, file)

    replace_file(path, write)
