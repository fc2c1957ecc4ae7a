"""Find the rows of the user's files that hold pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import log
from opera.data.names import DataName, TableSource
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.sources import add_files, kind_of_files
from opera.data.table_files import is_beir
from opera.data.tables import Table


class SourceRow(NamedTuple):
    """A row of the user's file.

    Attributes:
        file: the name of the file, without folders.
        line: the line or row, as messages count it.
        values: the columns that OPERA does not use, as texts.
    """

    file: str
    line: int
    values: dict[str, str]


def name_listed_pairs(
    relation: Relation,
    data: RetrievalData,
    pairs: tuple[IntArray, IntArray],
    tables: TableSource,
) -> None:
    """Add pairs, query rows and document rows of ``data``, to a relation as a list.

    The list also has the names by which the files call the texts of the pairs.
    """
    columns = [
        values
        for texts, rows in zip((data.queries, data.corpus), pairs, strict=True)
        for values in (texts.ids(rows), texts.texts(rows))
    ]
    names = ("query_id", "query", "doc_id", "document")
    rows = zip(range(len(pairs[0])), *columns, strict=True)
    relation.stream_rows(rows, dict.fromkeys(names, pa.string()))
    relation.execute(f"INSERT INTO id_list (table_row, {', '.join(names)}) FROM stream")
    relation.run(
        "name listed pairs",
        query_ids=tables.queries is not None,
        document_ids=tables.documents is not None,
    )


def source_rows(
    data: RetrievalData, source: DataName, pairs: tuple[IntArray, IntArray]
) -> list[SourceRow | None]:
    """Find the first row of each pair in the user's tables.

    Args:
        data: the data set.
        source: its name.
        pairs: query rows and document rows.

    Returns:
        A row per pair; ``None`` for a pair that no row has, and for data that are not tables in
        files. If a file cannot be read, a note says why, and all are ``None``.
    """
    nowhere: list[SourceRow | None] = [None] * len(pairs[0])
    if isinstance(source, str):
        if kind_of_files(source) != "tables" or is_beir(source):
            return nowhere
        source = TableSource.of(source)
    if not nowhere or any(path.startswith("hf:") for path in source.files):
        return nowhere
    try:
        return _rows_in_files(data, source, pairs)
    except DataError as error:  # the file is gone or has changed; pairs still have their texts
        log.info("note: the lists of pairs have no line numbers: %s", error)
        return nowhere


def _rows_in_files(
    data: RetrievalData, source: TableSource, pairs: tuple[IntArray, IntArray]
) -> list[SourceRow | None]:
    found: list[SourceRow | None] = [None] * len(pairs[0])
    with TemporaryDirectory() as folder:
        relation = Relation(Path(folder), skip_bad_rows=source.skip_bad_rows)
        add_files(relation, source)
        name_listed_pairs(relation, data, pairs, source)
        by_file: dict[int, dict[int, int]] = {}
        for list_row, file_number, table_row in relation.run("first rows of listed pairs"):
            by_file.setdefault(file_number, {})[list_row] = table_row
        for file_number, table_rows in by_file.items():
            table, roles = relation.files[file_number]
            unused = [name for name in table.columns if name not in roles.values()]
            values = _values(relation, table, unused, sorted(set(table_rows.values())))
            for list_row, table_row in table_rows.items():
                row = SourceRow(table.short, table.line(table_row), values[table_row])
                found[list_row] = row
    return found


def _values(
    relation: Relation, table: Table, columns: Sequence[str], table_rows: Sequence[int]
) -> dict[int, dict[str, str]]:
    """Return the texts of some columns of some rows, by row and column."""
    relation.source(table, {name: [name] for name in columns})
    names = [f"c{table.columns.index(name)}::VARCHAR" for name in columns]
    selected = ", ".join(["table_row", *names])
    rows = relation.execute(
        f"SELECT {selected} FROM stream WHERE list_contains($table_rows, table_row)",
        {"table_rows": list(table_rows)},
    ).fetchall()
    return {
        row: {name: text or "" for name, text in zip(columns, texts, strict=True)}
        for row, *texts in rows
    }
