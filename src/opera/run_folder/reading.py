"""Read the files of run and grid folders. Every error has the path of the file.

The folders may come from strangers, so JSON, Parquet and arrays are read as data, never unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from opera.core.errors import RunFolderError
from opera.core.files import open_file, read_json
from opera.core.terminal import shortened

Model = TypeVar("Model", bound=BaseModel)


class RecordPart(BaseModel):
    """A part of a record. It checks every field and rejects unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False
    )


def broken(path: Path, reason: str) -> RunFolderError:
    """Return the error for a damaged file of a run."""
    return RunFolderError(
        f"{path}: is damaged: {' '.join(reason.split())}; restore it, or delete the run"
    )


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RunFolderError: if the file cannot be read or holds anything else.
    """
    with file_errors(path):
        values = read_json(path)
        if not isinstance(values, dict):
            raise ValueError("must be a JSON object")
    return values


def read_model(path: Path, kind: type[Model], values: Mapping[str, Any] | None = None) -> Model:
    """Read a JSON object, or use its ``values`` if it has been read, as a typed record.

    Raises:
        RunFolderError: with the first field that is missing or wrong.
    """
    with file_errors(path):
        return kind.model_validate(read_object(path) if values is None else values)


def read_table(path: Path) -> pa.Table:
    """Read a Parquet file.

    Raises:
        RunFolderError: if the file cannot be read.
    """
    with file_errors(path), open_file(path) as file:
        return pq.read_table(file, use_threads=False)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file without unpickling."""
    with file_errors(path), open_file(path) as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn every error of a library about a file's contents into a RunFolderError."""
    try:
        yield
    except RunFolderError:
        raise
    except FileNotFoundError:
        raise RunFolderError(f"{path}: is missing") from None
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        raise broken(path, shortened(field and f"{field}: ") + message) from None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:
        raise broken(path, shortened(str(error), 200) or type(error).__name__) from None
