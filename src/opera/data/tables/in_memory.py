"""Tables that are no files: of pyarrow, pandas or polars, of the library ``datasets``, and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.tables.readers import BATCH_ROWS, Rows, unique_columns


class MemoryTable:
    """A pyarrow table.

    Args:
        name: of the argument, for messages.
        table: the table.
    """

    split: str | None = None

    def __init__(self, name: str, table: pa.Table) -> None:
        self.name, self.short, self._table = name, name, table
        self.columns = unique_columns(name, list(table.column_names))

    def place(self, number: int) -> str:
        """Argument and row, as Python counts them."""
        return f"{self.name}[{number}]"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows."""
        first = 0
        for batch in self._table.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS):
            yield Rows(range(first, first + len(batch)), {name: batch[name] for name in columns})
            first += len(batch)


class DatasetTable:
    """A data set of the library ``datasets``.

    Args:
        name: for messages.
        dataset: the data set.
        split: the split of all its rows, where that is known.
        explain: turns an error of the library into ours.
    """

    def __init__(
        self,
        name: str,
        dataset: Any,
        split: str | None = None,
        explain: Callable[[Exception], Exception] | None = None,
    ) -> None:
        self.name, self.short, self.split, self._explain = name, name, split, explain
        form = getattr(dataset, "format", None) or {
            "type": None,
            "columns": dataset.column_names,
        }  # streams have none
        if form["type"] == "custom":
            raise DataError(
                f"{name}: has a transform, which is applied to no file; apply it for good with map()"
            )
        if form["columns"] is None:
            raise DataError(
                f"{name}: is a stream whose columns are not known; read it into a Dataset first"
            )
        self._dataset = dataset.with_format("arrow")
        self.columns = unique_columns(name, list(form["columns"]))

    def place(self, number: int) -> str:
        """Name and row, as Python counts them."""
        return f"{self.name}[{number}]"

    def batches(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows."""
        first = 0
        for part in self._parts(columns):
            arrays = {name: pa.concat_arrays(part[name].chunks) for name in columns}
            yield Rows(range(first, first + len(part)), arrays)
            first += len(part)

    def _parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        try:
            yield from self._dataset.select_columns(list(columns)).iter(batch_size=BATCH_ROWS)
        except MemoryError:
            raise
        except Exception as error:
            raise error if self._explain is None else self._explain(error) from error


def as_table(value: Any, name: str, columns: Sequence[str]) -> MemoryTable | DatasetTable:
    """Return the rows or columns that were passed, as a table.

    Args:
        value: a pyarrow table, a pandas or polars DataFrame, a ``datasets.Dataset``, columns by name, or a list or
            array of tuples or dictionaries.
        name: of the argument.
        columns: what the places of a tuple are called.

    Raises:
        DataError: for anything else, or where Arrow cannot hold it.
    """
    if hasattr(value, "column_names") and hasattr(value, "with_format"):
        if isinstance(value, Mapping):
            splits = ", ".join(map(str, value))
            raise DataError(
                f"{name}: is a DatasetDict ({splits}); pass one split, or save_to_disk() it and load the folder"
            )
        return DatasetTable(name, value)
    try:
        return MemoryTable(name, _arrow(value, name, columns))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = shortened(str(error).partition("\n")[0], 200)
        raise DataError(f"{name}: cannot be read as a table ({reason})") from None


def as_list(value: Any) -> Any:
    """Return the values of a numpy array as a list, its rows as lists or by their names; anything else as it is."""
    if isinstance(value, np.ndarray) and value.dtype.names is not None:
        return [dict(zip(value.dtype.names, row, strict=True)) for row in value.tolist()]
    return value.tolist() if isinstance(value, np.ndarray) else value


def check_ordered(values: Any, name: str) -> None:
    """Refuse a set, whose order is another in every process.

    Raises:
        DataError: for one.
    """
    if isinstance(values, set | frozenset):
        raise DataError(f"{name}: is a set, which has no order; pass a list")


def is_series(value: Any) -> bool:
    """Whether a value is a Series of pandas, which need not be installed."""
    kinds = [kind for kind in type(value).__mro__ if kind.__module__.partition(".")[0] == "pandas"]
    return any(kind.__name__ == "Series" for kind in kinds)


def _arrow(value: Any, name: str, columns: Sequence[str]) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind == "f" and len(value):
        _check_width(value[:1].tolist(), name, columns)
        return pa.table(
            {column: pa.array(own) for column, own in zip(columns, value.T, strict=False)}
        )
    value = as_list(value)
    if type(value).__module__.partition(".")[0] == "pandas" and not is_series(value):
        return pa.Table.from_pandas(value, preserve_index=False)
    if hasattr(value, "__arrow_c_stream__") and not is_series(value):
        return pa.table(value)
    if isinstance(value, Mapping):
        for key, column in value.items():
            check_ordered(column, f"{name}[{shown(key)}]")
        return pa.table(
            [pa.array(column) for column in value.values()], names=[str(key) for key in value]
        )
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _from_rows(value, name, columns)
    raise DataError(
        f"{name}: must be a table (pandas, polars, pyarrow or datasets.Dataset), columns by name or a list, "
        f"got {shown(type(value).__name__)}"
    )


def _from_rows(rows: Sequence[Any], name: str, columns: Sequence[str]) -> pa.Table:
    if not rows:
        raise DataError(f"{name}: must not be empty")
    rows = [
        row._asdict() if hasattr(row, "_asdict") else row for row in rows
    ]  # a named tuple says what is what
    if all(isinstance(row, Mapping) for row in rows):
        keys = dict.fromkeys(key for row in rows for key in row)
        return pa.table(
            [pa.array([row.get(key) for row in rows]) for key in keys],
            names=[str(key) for key in keys],
        )
    width = _check_width(rows, name, columns)
    for at, row in enumerate(rows):
        if not isinstance(row, tuple | list) or len(row) != width:
            raise DataError(
                f"{name}[{at}]: must be a tuple of {width} values, as the first is, got {shown(row)}"
            )
    values = zip(*rows, strict=True)
    return pa.table(
        {column: pa.array(list(own)) for column, own in zip(columns, values, strict=False)}
    )


def _check_width(rows: Sequence[Any], name: str, columns: Sequence[str]) -> int:
    width = len(rows[0]) if isinstance(rows[0], tuple | list) else 0
    if not 2 <= width <= len(columns):
        raise DataError(f"{name}[0]: must be a tuple ({', '.join(columns)}), got {shown(rows[0])}")
    return width
