"""Read vectors that a service computed, and put them into the order of a data set's tables."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from opera.core.arrays import save_rows
from opera.core.cache import cached
from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import printable, shortened, shown
from opera.data import RetrievalData, TextTable
from opera.data.lines import numbered_lines
from opera.retrieval.frozen import FrozenVectors

SUFFIXES = (".npy", ".parquet")
CHUNK_ROWS = 65_536
VECTORS_FILE = "vectors.npy"


def read_both(queries: Path, documents: Path, data: RetrievalData) -> tuple[FrozenVectors, str]:
    """Read the vectors of all queries and documents of a data set, and the SHA-256 of the files, in hex.

    Raises:
        DataError: as :func:`read_vectors`, and where queries and documents have vectors of different lengths.
    """
    query_vectors, query_digest = read_vectors(queries, data.queries, "query")
    document_vectors, document_digest = read_vectors(documents, data.corpus, "document")
    lengths = query_vectors.shape[1], document_vectors.shape[1]
    if lengths[0] != lengths[1]:
        raise DataError(
            f"{queries} has vectors of length {lengths[0]}, {documents} of {lengths[1]}: both must come from one model"
        )
    return FrozenVectors(query_vectors, document_vectors), query_digest + document_digest


def read_vectors(path: Path, table: TextTable, kind: str) -> tuple[NDArray[np.float32], str]:
    """Read the vectors of a table's rows from a file, normalised, and cache them in the order of the rows.

    Args:
        path: ``.npy`` ``[n, d]`` with one id per line in a ``.txt`` of the same name beside it, or ``.parquet`` with
            the columns ``id`` and ``vector``. Vectors of ids that the table does not have are left out.
        table: the queries or documents.
        kind: ``query`` or ``document``, for messages.

    Returns:
        float32 ``[rows, d]``, memory-mapped, and the SHA-256 of file and ids, in hex.

    Raises:
        DataError: for a file that cannot be read, a row without a vector, or a vector without a direction.
    """
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"{path}: must end in {' or '.join(SUFFIXES)}; the suffix decides the format"
        )

    def write(folder: Path) -> None:
        ids, vectors = _read_npy(path) if path.suffix == ".npy" else _read_parquet(path)
        rows = _find(ids, table, path, kind)
        save_rows(
            folder / VECTORS_FILE, _parts(vectors, rows, ids, path), len(rows), vectors.shape[1]
        )
        if _digest(path, table) != digest:
            raise DataError(f"{path}: changed while it was read; run the command again")

    try:
        digest = _digest(path, table)
        home = cached("vectors", digest[:32], write)
    except OSError as error:
        raise DataError(
            f"{error.filename or path}: cannot be read ({error.strerror or error})"
        ) from None
    return np.load(home / VECTORS_FILE, mmap_mode="r"), digest


def _digest(path: Path, table: TextTable) -> str:
    """SHA-256 of the files and of the table's ids."""
    total = hashlib.sha256("\0".join(table.ids()).encode())
    for file in [path, *([_ids_file(path)] if path.suffix == ".npy" else [])]:
        with open_file(file) as opened:
            total.update(hashlib.file_digest(opened, "sha256").digest())
    return total.hexdigest()


def _ids_file(path: Path) -> Path:
    ids = path.with_suffix(".txt")
    if os.path.lexists(path) and not os.path.lexists(ids):
        raise DataError(
            f"{path}: needs {ids.name} beside it, with the id of each row, one per line"
        )
    return ids


def _read_npy(path: Path) -> tuple[list[str], NDArray[np.floating]]:
    try:
        vectors = np.lib.format.open_memmap(
            path, mode="r"
        )  # unlike np.load it reads neither archives nor pickles
    except (
        Exception
    ) as error:  # the header is an expression of Python; a spoilt one raises many types
        raise DataError(
            f"{path}: is not a NumPy array that can be read ({_reason(error)})"
        ) from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise DataError(
            f"{path}: must hold an array [n, d] of floats, got {list(vectors.shape)} of {vectors.dtype}"
        )
    ids = [line for _, line in numbered_lines(_ids_file(path))]
    if len(ids) != len(vectors):
        raise DataError(
            f"{path}: has {len(vectors):,} rows, but {_ids_file(path).name} has {len(ids):,} ids"
        )
    return ids, vectors


def _read_parquet(path: Path) -> tuple[list[str], NDArray[np.floating]]:
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            for name in ("id", "vector"):
                if names.count(name) != 1:
                    has = shortened(printable(", ".join(names)))
                    raise DataError(f"{path}: must have one column '{name}' (it has: {has})")
            table = file.read(columns=["id", "vector"]).combine_chunks()
        return _ids_and_vectors(path, table)
    except DataError:
        raise
    except Exception as error:  # Arrow raises many types on spoilt files
        raise DataError(
            f"{path}: is not a Parquet file that can be read ({_reason(error)})"
        ) from None


def _ids_and_vectors(path: Path, table: pa.Table) -> tuple[list[str], NDArray[np.floating]]:
    ids, column = table["id"].cast(pa.string()).to_pylist(), table["vector"]
    kind = column.type
    lists = (
        pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)
    )
    if not lists or not pa.types.is_floating(kind.value_type):
        raise DataError(
            f"{path}: the column 'vector' must hold lists of floats, got {shown(str(kind))}"
        )
    lengths = set(pc.list_value_length(column).to_pylist())
    if len(lengths) != 1 or None in lengths or None in ids:
        raise DataError(
            f"{path}: every row must have an id and a vector of the same length, and there must be a row"
        )
    flat = pa.concat_arrays([chunk.flatten() for chunk in column.chunks])
    return ids, flat.to_numpy(zero_copy_only=False).reshape(len(ids), lengths.pop())


def _reason(error: Exception) -> str:
    return shortened(printable(" ".join(str(error).split()))) or type(error).__name__


def _find(ids: list[str], table: TextTable, path: Path, kind: str) -> NDArray[np.int64]:
    """Return the row of the file for each row of the table."""
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(identifier for identifier in ids if identifier in seen or seen.add(identifier))  # type: ignore[func-returns-value]
        raise DataError(f"{path}: has two vectors for the id {shown(twice)}")
    places = {identifier: place for place, identifier in enumerate(ids)}
    wanted = table.ids()
    rows = np.array([places.get(identifier, -1) for identifier in wanted], dtype=np.int64)
    if (absent := np.flatnonzero(rows < 0)).size:
        raise DataError(
            f"{path}: has no vector for {kind} {shown(wanted[absent[0]])}; {absent.size:,} of {len(wanted):,} have "
            "none, and each needs one"
        )
    return rows


def _parts(
    vectors: NDArray[np.floating], rows: NDArray[np.int64], ids: list[str], path: Path
) -> Iterator[NDArray[np.float32]]:
    """Yield the normalised vectors of some rows, chunk by chunk."""
    for start in range(0, len(rows), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        chunk = vectors[part].astype(np.float64)
        with np.errstate(all="ignore"):  # what is no number is looked for below
            lengths = np.linalg.norm(chunk, axis=1, keepdims=True)
        bad = np.flatnonzero(~(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
        if bad.size:
            name = shown(ids[part[bad[0]]])
            raise DataError(
                f"{path}: the vector of {name} is zero, too long, or holds a value that is no number"
            )
        yield (chunk / lengths).astype(np.float32)
