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
        self, name: str, dataset: Any, split: str | None = None, explain: Callable[[Exception], Exception] | None = None
    ) -> None:
        self.name, self.short, self.split, self._explain = name, name, split, explain
        self._dataset = dataset.with_format("arrow")
        self.columns = unique_columns(name, list(dataset.column_names))

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
        return DatasetTable(name, value)
    try:
        return MemoryTable(name, _arrow(value, name, columns))
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        reason = shortened(str(error).partition("\n")[0], 200)
        raise DataError(f"{name}: cannot be read as a table ({reason})") from None


def as_list(value: Any) -> Any:
    """Return the values of a numpy array as a list, its rows as lists; anything else as it is."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def is_series(value: Any) -> bool:
    """Whether a value is a Series of pandas, which need not be installed."""
    kinds = [kind for kind in type(value).__mro__ if kind.__module__.partition(".")[0] == "pandas"]
    return any(kind.__name__ == "Series" for kind in kinds)


def _arrow(value: Any, name: str, columns: Sequence[str]) -> pa.Table:
    if isinstance(value, pa.Table):
        return value
    value = as_list(value)
    if type(value).__module__.partition(".")[0] == "pandas" and not is_series(value):
        return pa.Table.from_pandas(value, preserve_index=False)
    if hasattr(value, "__arrow_c_stream__") and not is_series(value):
        return pa.table(value)
    if isinstance(value, Mapping):
        return pa.table({str(key): pa.array(column) for key, column in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _from_rows(value, name, columns)
    raise DataError(
        f"{name}: must be a table (pandas, polars, pyarrow or datasets.Dataset), columns by name or a list, "
        f"got {shown(type(value).__name__)}"
    )


def _from_rows(rows: Sequence[Any], name: str, columns: Sequence[str]) -> pa.Table:
    if not rows:
        raise DataError(f"{name}: must not be empty")
    if all(isinstance(row, Mapping) for row in rows):
        keys = dict.fromkeys(key for row in rows for key in row)
        return pa.table({str(key): pa.array([row.get(key) for row in rows]) for key in keys})
    width = len(rows[0]) if isinstance(rows[0], tuple | list) else 0
    if not 2 <= width <= len(columns):
        raise DataError(f"{name}[0]: must be a tuple ({', '.join(columns)}), got {shown(rows[0])}")
    for at, row in enumerate(rows):
        if not isinstance(row, tuple | list) or len(row) != width:
            raise DataError(f"{name}[{at}]: must be a tuple of {width} values, as the first is, got {shown(row)}")
    values = zip(*rows, strict=True)
    return pa.table({column: pa.array(list(own)) for column, own in zip(columns, values, strict=False)})
