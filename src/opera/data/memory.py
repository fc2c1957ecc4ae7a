"""Tables in memory: pyarrow, pandas, polars, ``datasets`` and lists. The rules of files apply."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.arguments import flag
from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.add_tables import add_tables
from opera.data.columns import LISTS_OF_TEXTS, Columns, TableKind, parse_columns
from opera.data.names import MEMORY
from opera.data.numbering import TextNumbering, load_relation
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder
from opera.data.tables import BATCH_ROWS, MemoryTable, Problems, Table

PAIR = ("query", "document", "grade")
_LISTS = (list, tuple, np.ndarray)


def table_of_dataset(name: str, dataset: Any) -> MemoryTable:
    """Wrap a data set of the library ``datasets``.

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

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        arrow = dataset.with_format("arrow").select_columns(columns)
        for batch in arrow.iter(batch_size=BATCH_ROWS):
            yield from batch.combine_chunks().to_batches()

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
        table = _aligned(queries, documents)
    else:
        table = _as_table(pairs, "pairs", PAIR)
        if documents is not None:
            texts["documents"] = [_texts(documents, "documents")]
        if queries is not None:
            texts["queries"] = [_texts(queries, "queries")]
    digest = hashlib.sha256(f"memory\0{assignments}\0{skip}".encode())
    for kind, table_of_kind in [
        *((kind, table_of_kind) for kind, (table_of_kind,) in texts.items()),
        ("pairs", table),
    ]:
        digest.update(f"\0{kind}\0".encode())
        for batch in table_of_kind.batches(table_of_kind.columns, Problems()):
            record_batch, sink = pa.record_batch(batch.columns), pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, record_batch.schema) as writer:
                writer.write_batch(record_batch)
            digest.update(memoryview(sink.getvalue()))

    def read(relation: Relation, builder: DataBuilder) -> None:
        add_tables(relation, texts, [(None, table)], Columns(assignments))
        TextNumbering(relation, builder, "pairs").build()

    return load_relation(digest.hexdigest(), name, f"{MEMORY}{name}", read, skip_bad_rows=skip)


def _aligned(queries: Any, documents: Any) -> MemoryTable:
    """A table of pairs from two lists of equal length."""
    import pandas as pd

    if queries is None or documents is None:
        raise DataError(
            "pairs: is missing; pass pairs, or queries and documents as two lists of texts of "
            "equal length"
        )
    both = {"queries": queries, "documents": documents}
    for name, texts in both.items():
        if not isinstance(texts, (*_LISTS, pd.Series)):  # a set has no order
            raise DataError(
                f"{name}: without pairs, must be a list of texts, got {shown(type(texts).__name__)}"
            )
    if len(queries) != len(documents):
        raise DataError(
            "queries and documents: without pairs, query i belongs to document i, but there are "
            f"{len(queries):,} queries and {len(documents):,} documents; pass pairs"
        )
    labels = [list(texts.index) for texts in both.values() if isinstance(texts, pd.Series)]
    if len(labels) == 2 and labels[0] != labels[1] and set(labels[0]) == set(labels[1]):
        raise DataError(
            "queries and documents: have the same index in different orders, but query i belongs "
            "to document i; reorder one of them, or call reset_index(drop=True) on both"
        )
    return _as_table({"query": list(queries), "document": list(documents)}, "pairs", PAIR)


def _texts(value: Any, name: str) -> MemoryTable:
    """Documents or queries: texts by id, a list of texts with the ids 0, 1, ..., or a table.

    The index of a pandas Series has the ids.
    """
    import pandas as pd

    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        for position, text in enumerate(value):
            if not isinstance(text, str):
                raise DataError(f"{name}[{position}]: must be a text, got {shown(text)}")
        value = dict(enumerate(value))
    by_id = isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())
    if by_id or isinstance(value, pd.Series):
        value = {"id": list(value.keys()), "text": list(value.values() if by_id else value)}
    return _as_table(value, name, ("id", "text", "title"))


def _as_table(value: Any, name: str, columns: Sequence[str]) -> MemoryTable:
    """Rows or columns as a table. If rows are tuples, ``columns`` names their values, in order."""
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
            table = pa.table(value)
        else:
            frame = _frame(value, name, columns)
            arrays = [_column(frame.iloc[:, position], name) for position in range(frame.shape[1])]
            table = pa.table(arrays, names=list(map(str, frame)))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = shortened(str(error).partition("\n")[0], 200)
        raise DataError(f"{name}: cannot be read as a table ({reason})") from None
    return MemoryTable(name, table.column_names, lambda columns: table.select(columns).to_batches())


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
    first_value = value[0]
    if isinstance(first_value, Mapping | np.record) or hasattr(
        first_value, "_fields"
    ):  # has column names
        return pd.DataFrame(value)
    for table_row, values in enumerate(value):
        if not isinstance(values, _LISTS) or len(values) != len(first_value) or len(values) < 2:
            raise DataError(
                f"{name}[{table_row}]: must be a tuple ({', '.join(columns)}), as all rows, got "
                f"{shown(values)}"
            )
    return pd.DataFrame(value, columns=list(columns[: len(first_value)]))


def _column(values: Any, name: str) -> pa.Array:
    """A column as an Arrow array; a mix of texts and numbers becomes texts."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        with_lists = any(isinstance(value, _LISTS) for value in values)
        texts = [_as_text(value, name) for value in values]
        if with_lists:
            texts = [text if isinstance(text, list) else [text] for text in texts]
        return pa.array(texts, LISTS_OF_TEXTS if with_lists else pa.string())


def _as_text(value: Any, name: str) -> Any:
    """A value of a mixed column as a text, or as a list of texts; NaN becomes ``None``."""
    import pandas as pd

    if isinstance(value, _LISTS):
        return [_as_text(part, name) for part in value]
    if value is None or value is pd.NA or value != value:
        return None
    if isinstance(value, bool) or not isinstance(value, str | Real):
        raise DataError(f"{name}: a column must hold texts or numbers, got {shown(value)}")
    is_whole = isinstance(value, float | np.floating) and value.is_integer()
    return f"{value:.0f}" if is_whole else str(value)
