"""Tables in memory: pyarrow, pandas, polars, ``datasets`` and lists. The rules of files apply."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.arguments import flag
from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.adapters import add_tables
from opera.data.arrow_tables import MemoryTable
from opera.data.columns import Columns, TableKind, parse_columns
from opera.data.index import Index, parse_relation
from opera.data.names import MEMORY
from opera.data.problems import Problems
from opera.data.read import BATCH_ROWS, Table
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.store import LAYOUT, DataBuilder, load_or_parse

PAIR = ("query", "document", "grade")
_LISTS = (list, tuple, np.ndarray)


def table_of(name: str, table: pa.Table) -> MemoryTable:
    """Wrap a pyarrow table; ``name`` is the name of the argument."""
    return MemoryTable(name, table.column_names, lambda columns: table.select(columns).to_batches())


def table_of_dataset(
    name: str, dataset: Any, explain: Callable[[Exception], Exception] | None = None
) -> MemoryTable:
    """Wrap a data set of the library ``datasets``; ``explain`` translates the library's errors.

    Raises:
        DataError: if it has a transform, or its columns are unknown.
    """
    # streams have no format
    form = getattr(dataset, "format", None) or {"type": None, "columns": dataset.column_names}
    if form["type"] == "custom":
        raise DataError(
            f"{name}: has a transform, which OPERA does not apply; apply it first with map()"
        )
    if form["columns"] is None:
        raise DataError(f"{name}: is a stream with unknown columns; convert it to a Dataset first")

    def read(columns: list[str]) -> Iterator[pa.Table]:
        try:
            arrow = dataset.with_format("arrow")
            yield from arrow.select_columns(columns).iter(batch_size=BATCH_ROWS)
        except MemoryError:
            raise
        except Exception as error:
            raise error if explain is None else explain(error) from error

    return MemoryTable(name, form["columns"], read)


def load_memory(
    queries: Any,
    documents: Any,
    pairs: Any,
    columns: Any = None,
    name: str = "pairs",
    skip_bad_rows: bool = False,
) -> RetrievalData:
    """Load data in memory; see :func:`opera.load_data`."""
    assignments, skip = parse_columns(columns), flag(skip_bad_rows, "skip_bad_rows")
    texts: dict[TableKind, list[Table]] = {}
    if pairs is None:
        tables = [_aligned(queries, documents)]
    else:
        tables = [_as_table(pairs, "pairs", PAIR)]
        if documents is not None:
            texts["documents"] = [_texts(documents, "documents")]
        if queries is not None:
            texts["queries"] = [_texts(queries, "queries")]
    digest = hashlib.sha256(f"memory\0{LAYOUT}\0{assignments}\0{skip}".encode())
    for kind, table in [
        *((kind, tables_of_kind[0]) for kind, tables_of_kind in texts.items()),
        ("pairs", tables[0]),
    ]:
        digest.update(f"\0{kind}\0".encode())
        for rows in table.batches(table.columns, Problems()):
            batch, sink = pa.record_batch(rows.columns), pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            digest.update(memoryview(sink.getvalue()))

    def read(relation: Relation, builder: DataBuilder) -> None:
        add_tables(relation, texts, [(None, table) for table in tables], Columns(assignments))
        Index(relation, builder, "pairs").build()

    parse = partial(parse_relation, read, skip_bad_rows=skip)
    return load_or_parse(digest.hexdigest(), name, f"{MEMORY}{name}", parse)


def _aligned(queries: Any, documents: Any) -> MemoryTable:
    """A table of pairs from two lists of equal length."""
    import pandas as pd

    if queries is None or documents is None:
        raise DataError(
            "pairs: is missing; pass pairs, or queries and documents as two lists of texts of "
            "equal length"
        )
    both = {"query": _list(queries, "queries"), "document": _list(documents, "documents")}
    n_queries, n_documents = map(len, both.values())
    if n_queries != n_documents:
        raise DataError(
            "queries and documents: without pairs, query i belongs to document i, but there are "
            f"{n_queries:,} queries and {n_documents:,} documents; pass pairs"
        )
    labels = [list(texts.index) for texts in (queries, documents) if isinstance(texts, pd.Series)]
    if len(labels) == 2 and labels[0] != labels[1] and set(labels[0]) == set(labels[1]):
        raise DataError(
            "queries and documents: have the same index in different orders, but query i belongs "
            "to document i; reorder one of them, or call reset_index(drop=True) on both"
        )
    return table_of("pairs", pa.table(both))


def _list(values: Any, name: str) -> pa.Array:
    """A list of texts as an Arrow array."""
    if isinstance(values, set | frozenset):  # its order differs between processes
        raise DataError(f"{name}: is a set, which has no order; pass a list")
    not_list = isinstance(values, str | bytes | Mapping) or hasattr(values, "columns")
    if not_list or not hasattr(values, "__iter__"):
        kind = shown(type(values).__name__)
        raise DataError(f"{name}: without pairs, must be a list of texts, got {kind}")
    texts = list(values)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"{name}[{number}]: must be a text, got {shown(text)}")
    try:
        return pa.array(texts, pa.string())
    except UnicodeError:
        raise DataError(
            f"{name}: contains half a character, as in a cut emoji; remove it"
        ) from None


def _texts(value: Any, name: str) -> MemoryTable:
    """Documents or queries: texts by id, a list of texts with the ids 0, 1, ..., or a table.

    The index of a pandas Series has the ids.
    """
    import pandas as pd

    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.names is None:
        value = value.tolist()
    if isinstance(value, pd.Series):
        ids, texts = value.index.tolist(), value.tolist()
    elif isinstance(value, Mapping) and not any(map(_is_column, value.values())):
        ids, texts = list(value), list(value.values())
    elif isinstance(value, list | tuple) and value and isinstance(value[0], str):
        ids, texts = list(range(len(value))), list(value)
    else:
        return _as_table(value, name, ("id", "text", "title"))
    for value in ids:
        if not isinstance(value, str | Integral):
            raise DataError(f"{name}: ids must be texts or whole numbers, got {shown(value)}")
    id_array = pa.array([str(value) for value in ids], pa.string())
    return table_of(name, pa.table({"id": id_array, "text": _list(texts, name)}))


def _is_column(value: Any) -> bool:
    """Whether a value of a dictionary is a column, and not a single value."""
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes)


def _as_table(value: Any, name: str, columns: Sequence[str]) -> MemoryTable:
    """Rows or columns as a table; ``columns`` are the names of the values in a tuple."""
    import pandas as pd

    if hasattr(value, "column_names") and hasattr(value, "with_format"):
        if isinstance(value, Mapping):
            raise DataError(
                f"{name}: is a DatasetDict ({', '.join(map(str, value))}); pass one split, or call "
                "save_to_disk() and pass the folder"
            )
        return table_of_dataset(name, value)
    try:
        if hasattr(value, "__arrow_c_stream__") and not isinstance(value, pd.DataFrame | pd.Series):
            return table_of(name, pa.table(value))
        frame = _frame(value, name, columns)
        arrays = [_column(frame.iloc[:, place], str(key), name) for place, key in enumerate(frame)]
        return table_of(name, pa.table(arrays, names=list(map(str, frame))))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = shortened(str(error).partition("\n")[0], 200)
        raise DataError(f"{name}: cannot be read as a table ({reason})") from None


def _frame(value: Any, name: str, columns: Sequence[str]) -> Any:
    """Rows or columns as a pandas DataFrame; ``datasets`` installs pandas."""
    import pandas as pd

    if isinstance(value, pd.DataFrame | Mapping):
        return pd.DataFrame(value)
    if not isinstance(value, list | tuple | np.ndarray):
        raise DataError(
            f"{name}: must be a table (pandas, polars, pyarrow or datasets.Dataset), columns "
            f"by name or a list, got {shown(type(value).__name__)}"
        )
    if len(value) == 0:
        raise DataError(f"{name}: must not be empty")
    rows = list(value) if isinstance(value, tuple) else value
    first = rows[0]
    if isinstance(first, Mapping | np.record) or hasattr(first, "_fields"):  # has column names
        return pd.DataFrame(rows)
    width = len(first) if isinstance(first, tuple | list | np.ndarray) else 0
    if not 2 <= width <= len(columns):
        raise DataError(f"{name}[0]: must be a tuple ({', '.join(columns)}), got {shown(first)}")
    for number, row in enumerate(rows):
        if not isinstance(row, tuple | list | np.ndarray) or len(row) != width:
            raise DataError(
                f"{name}[{number}]: must be a tuple of {width} values, like the first row, got "
                f"{shown(row)}"
            )
    return pd.DataFrame(rows, columns=list(columns[:width]))


def _column(values: Any, column: str, name: str) -> pa.Array:
    """A column as an Arrow array; a mix of texts and numbers becomes texts."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        with_lists = any(isinstance(value, _LISTS) for value in values)
        texts = [
            _as_text(value, with_lists, f"{name}[{row}]: column {shown(column)}")
            for row, value in enumerate(values)
        ]
        return pa.array(texts, pa.list_(pa.string()) if with_lists else pa.string())


def _as_text(value: Any, as_list: bool, place: str) -> Any:
    """A value of a mixed column as a text, or as a list of texts; NaN becomes ``None``."""
    if as_list and isinstance(value, _LISTS):
        return [_as_text(part, False, place) for part in value]
    if value is None or (isinstance(value, Real) and math.isnan(value)):
        text = None
    elif isinstance(value, float | np.floating) and value.is_integer():
        text = f"{value:.0f}"
    elif isinstance(value, str | Real) and not isinstance(value, bool):
        text = str(value)
    else:
        raise DataError(f"{place} must be a text or a number, got {shown(value)}")
    return [text] if as_list else text
