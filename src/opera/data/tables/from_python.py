"""``RetrievalData.from_pairs``: data that a program holds, by the same path as files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.names import MEMORY
from opera.data.store import DataBuilder, load_or_parse
from opera.data.tables.columns import Columns, TableKind, columns_by_role
from opera.data.tables.in_memory import MemoryTable, as_list, as_table, check_ordered, is_series
from opera.data.tables.load import RULES, store_tables
from opera.data.tables.readers import TableFile

if TYPE_CHECKING:
    from opera.data.retrieval_data import RetrievalData

PAIR = ("query", "document", "grade")


def from_pairs(
    queries: Any,
    documents: Any,
    pairs: Any,
    columns: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None,
    name: str,
) -> RetrievalData:
    """See :meth:`opera.RetrievalData.from_pairs`."""
    given = columns_by_role(columns)
    texts: dict[TableKind, list[TableFile]] = {}
    if pairs is None:
        tables: list[TableFile] = [_aligned(queries, documents)]
    else:
        tables = [as_table(pairs, "pairs", PAIR)]
        for kind, value in (("documents", documents), ("queries", queries)):
            if value is not None:
                texts["documents" if kind == "documents" else "queries"] = [_texts(value, kind)]

    def digest() -> str:
        total = hashlib.sha256(f"from_pairs\0{RULES}\0{given}".encode())
        for kind, files in (*texts.items(), ("pairs", tables)):
            total.update(f"\0{kind}\0".encode())
            for file in files:
                _hash(file, total)
        return total.hexdigest()

    def parse(builder: DataBuilder) -> None:
        store_tables(builder, texts, [(None, file) for file in tables], Columns(given))

    return load_or_parse(digest, name, f"{MEMORY}{name}", parse)


def _aligned(queries: Any, documents: Any) -> TableFile:
    """A table of pairs from two lists of one length, or from one table that holds both."""
    if queries is None or documents is None:
        raise DataError(
            "pairs: is missing; give pairs, or queries and documents as two lists of texts, row by row"
        )
    both = {
        "query": _list_of_texts(queries, "queries"),
        "document": _list_of_texts(documents, "documents"),
    }
    counts = {key: len(values) for key, values in both.items()}
    if counts["query"] != counts["document"]:
        raise DataError(
            f"queries and documents: without pairs, row i belongs to row i, but there are {counts['query']:,} queries "
            f"and {counts['document']:,} documents; give pairs"
        )
    labels = [list(values.index) for values in (queries, documents) if is_series(values)]
    if len(labels) == 2 and labels[0] != labels[1] and set(labels[0]) == set(labels[1]):
        raise DataError(
            "queries and documents: have the same index in different orders, and row i belongs to row i; bring one "
            "into the order of the other, or reset_index(drop=True) both"
        )
    return MemoryTable("pairs", pa.table(both))


def _list_of_texts(values: Any, name: str) -> pa.Array:
    if (
        isinstance(values, str | bytes | Mapping)
        or hasattr(values, "columns")
        or not hasattr(values, "__iter__")
    ):
        raise DataError(
            f"{name}: without pairs, must be a list of texts, got {shown(type(values).__name__)}"
        )
    check_ordered(values, name)
    found = list(values)
    for at, text in enumerate(found):
        if not isinstance(text, str):
            raise DataError(f"{name}[{at}]: must be a text, got {shown(text)}; tables need pairs")
    try:
        return pa.array(found, pa.string())
    except UnicodeError:
        raise DataError(f"{name}: holds half a character, as of a cut emoji; remove it") from None


def _texts(value: Any, name: str) -> TableFile:
    """Documents or queries: texts by id, a list of texts whose ids are 0, 1, ..., or a table.

    A pandas Series holds its texts by its index.
    """
    if is_series(value):
        return _by_id(value.index.tolist(), value.tolist(), name)
    if isinstance(value, Mapping) and not any(_is_column(own) for own in value.values()):
        return _by_id(list(value), list(value.values()), name)
    value = as_list(value)
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and value
        and isinstance(value[0], str)
    ):
        ids = pa.array([str(row) for row in range(len(value))])
        return MemoryTable(name, pa.table({"id": ids, "text": _list_of_texts(value, name)}))
    return as_table(value, name, ("id", "text", "title"))


def _by_id(ids: list[Any], texts: list[Any], name: str) -> TableFile:
    for own, text in zip(ids, texts, strict=True):
        if not isinstance(own, str | Integral):
            raise DataError(f"{name}: ids must be texts or whole numbers, got {shown(own)}")
        if not isinstance(text, str):
            raise DataError(f"{name}[{shown(own)}]: must be a text, got {shown(text)}")
    found = pa.array([str(own) for own in ids], pa.string())
    return MemoryTable(name, pa.table({"id": found, "text": _list_of_texts(texts, name)}))


def _is_column(value: Any) -> bool:
    """Whether a value of a dictionary is a column, and no text, number or nothing."""
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes)


def _hash(file: TableFile, total: Any) -> None:
    """Hash the columns of a table."""
    for rows in file.batches(file.columns):
        batch = pa.record_batch([rows.columns[name] for name in file.columns], names=file.columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        total.update(memoryview(sink.getvalue()))
