"""Read the files of run and grid folders: what is wrong with one is an error that names it.

The folders may come from others, from a broken disk, or from a process that was cut off. So every
JSON object, table and set of arrays in them is read here, checked against what OPERA writes, and
bounded before memory is taken for it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from opera.core.errors import RunFolderError, StorageError
from opera.core.reading import open_file, read_json
from opera.core.terminal import printable, shortened

MAX_JSON = 2**26
"""Bytes of a JSON file."""
MAX_ROWS = 50_000_000
"""Rows of a table; a few bytes of a compressed file can claim any number."""
MAX_ARRAYS = 2**33
"""Bytes of a file's arrays together."""

KINDS = {
    "text": pa.types.is_string,
    "texts": lambda kind: pa.types.is_list(kind) and pa.types.is_string(kind.value_type),
    "whole": pa.types.is_integer,
    "number": lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
    "measure": pa.types.is_floating,
    "flag": pa.types.is_boolean,
}
"""Kinds of columns. A ``number`` may be absent or NaN, as a loss may; nothing else may."""

Model = TypeVar("Model", bound=BaseModel)


def broken(path: Path, reason: str) -> RunFolderError:
    """Return the error for a file of a run that cannot be used."""
    return RunFolderError(
        f"{path}: is not as OPERA wrote it: {printable(' '.join(reason.split()))}"
    )


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; RunFolderError if the file cannot be read or holds anything else."""
    with _reading(path):
        if path.stat().st_size > MAX_JSON:
            raise ValueError(f"larger than {MAX_JSON >> 20} MB")
        values = read_json(path)
        if not isinstance(values, dict):
            raise ValueError("must be a JSON object")
    return values


def read_model(path: Path, kind: type[Model], values: Mapping[str, Any] | None = None) -> Model:
    """Read a JSON object, or ``values`` where it has been read, as a typed record.

    RunFolderError names the first field that is missing or wrong.
    """
    found = read_object(path) if values is None else values
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = shortened(".".join(str(part) for part in first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise broken(path, f"{where}: {message}" if where else message) from None


def read_table(path: Path, columns: Mapping[str, str]) -> pa.Table:
    """Read a parquet file with columns of these kinds, by name; others must be of any kind.

    RunFolderError is raised if it is no such table.
    """
    with _reading(path), open_file(path) as file:
        parquet = pq.ParquetFile(file)
        if parquet.metadata.num_rows > MAX_ROWS:
            raise ValueError(f"claims {parquet.metadata.num_rows:,} rows")
        table = parquet.read(use_threads=False)
        table.validate(full=True)
        names = table.column_names
        if len(set(names)) < len(names):
            raise ValueError("a column occurs twice")
        check_columns(path, table, columns)
        for name in set(names) - columns.keys():
            if not any(fits(table[name].type) for fits in KINDS.values()):
                raise ValueError(f"column {name!r} holds {shortened(str(table[name].type))}")
    return table


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read an ``.npz`` file of numbers and booleans; nothing is unpickled."""
    with _reading(path), open_file(path) as file, zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_ARRAYS:
            raise ValueError(f"claims more than {MAX_ARRAYS >> 30} GB")
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
                raise ValueError(f"{name} holds no numbers")
    return arrays


def check_columns(path: Path, table: pa.Table, columns: Mapping[str, str]) -> None:
    """Check that a table has columns of these kinds; RunFolderError names the first that is not."""
    for name, kind in columns.items():
        if name not in table.column_names:
            raise broken(path, f"column {name!r} is missing")
        column = table[name]
        if not KINDS[kind](column.type):
            found = shortened(str(column.type))
            raise broken(path, f"column {name!r} must be of the kind {kind!r}, but is {found}")
        if kind != "number" and column.null_count:
            raise broken(path, f"column {name!r} lacks values")
        if kind == "measure" and not np.isfinite(column.to_numpy()).all():
            raise broken(path, f"column {name!r} holds values that are no finite numbers")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a library makes of a file's contents into one error."""
    try:
        yield
    except (RunFolderError, StorageError):
        raise
    except FileNotFoundError:
        raise RunFolderError(f"{path}: is missing") from None
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise RunFolderError(f"{path}: cannot be read: {error.strerror.lower()}") from None
        said = shortened(" ".join(str(error).split()), 200)
        raise broken(path, said or type(error).__name__) from None
