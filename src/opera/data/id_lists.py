"""Read lists of pairs, such as decisions or a teacher's scores, without the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa

from opera.core.errors import DataError
from opera.core.terminal import printable, shortened, shown
from opera.data.add_tables import column_text
from opera.data.columns import Columns, matching_name, normal
from opera.data.delimited_tables import DelimitedTable
from opera.data.mixture import ListOptions
from opera.data.relation import Relation, Rule, id_rules, number_rules
from opera.data.table_files import files_in, open_texts
from opera.data.tables import Table
from opera.data.text_files import is_utf8

IDS = ("query_id", "doc_id")
USER_COLUMN = "my:"
"""The prefix of the user's columns in the lists of a run, so that they do not collide with ours."""
CUT = "…"
"""The end of a shortened text in a list."""


def cut(text: str, length: int) -> str:
    """Return a text, or its first ``length`` characters and :data:`CUT`."""
    return text if len(text) <= length else text[:length] + CUT


RANK = Rule(
    "first_rank",
    "number(first_rank) NOT BETWEEN 0 AND 1",
    "column {column} must be from 0 to 1, got {}",
    numeric=True,
)
"""The rule of a decision's first rank, a fraction of documents."""
SIMILARITY = "similarity"
"""The name of the column of scores if an embedding model wrote it."""


class IdList(NamedTuple):
    """A table of ids, read without the data.

    Attributes:
        path: the file.
        columns: all columns of the file, in the form of :func:`opera.data.columns.normal`.
        table: the requested columns, as texts.
        notes: sentences about its encoding and about rows that were left out.
    """

    path: Path
    columns: frozenset[str]
    table: pa.Table
    notes: list[str]


def read_lists(
    paths: Iterable[str | Path],
    options: ListOptions,
    needed: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> list[IdList]:
    """Read tables of ids without the data. All columns are text.

    Args:
        paths: tables, or folders of tables.
        options: how to read them.
        needed: required columns, in addition to ``query_id`` and ``doc_id``. As in tables of data,
            upper case, spaces and hyphens in names do not matter.
        optional: columns that a table may have.

    Raises:
        DataError: if a file cannot be read, or a needed column is missing.
    """
    lists = []
    for file in (file for path in paths for file in files_in(Path(path))):
        notes, encoding = list[str](), options.encoding
        if encoding is not None and is_utf8(file, encoding):
            encoding = None  # OPERA writes its own lists in UTF-8, whatever the data have
        (table,) = open_texts(str(file), "pairs", Columns(), notes, encoding)
        wanted = [*IDS, *needed, *optional]
        names = [_column(table, name, name in optional) for name in wanted]
        columns = {name: column for name, column in zip(wanted, names, strict=True) if column}
        with TemporaryDirectory() as folder:
            relation = Relation(Path(folder), skip_bad_rows=options.skip_bad_rows, notes=notes)
            checked = _checked_rows(relation, table, columns)
        lists.append(IdList(file, frozenset(map(normal, table.columns)), checked, notes))
    return lists


def _checked_rows(relation: Relation, table: Table, columns: Mapping[str, str]) -> pa.Table:
    """Read a list, and check its rows or leave out bad rows; ``columns`` are its columns by role.

    Raises:
        DataError: with file, line, rule and value.
    """
    names = {role: [column] for role, column in columns.items()}
    table.has_apostrophes = isinstance(table, DelimitedTable)
    if lists := relation.source(table, names):
        raise DataError(
            f"{table.name}: column {shown(min(lists))} must hold one value per row, got lists"
        )
    values = {role: column_text(table, of_role) for role, of_role in names.items()}
    if "first_rank" in values:  # an optional number
        values["first_rank"] = f"nullif({values['first_rank']}, '')"
    relation.insert("id_list", table, names, values)
    rules = [rule for role in IDS for rule in id_rules(role)]
    rules += [rule for role in ("score", "first_rank") for rule in number_rules(role)]
    rules.append(RANK)
    relation.find_violations("id_list", rules)
    relation.check_rows()
    return relation.db.sql(f"SELECT {', '.join(columns)} FROM id_list").to_arrow_table()


def _column(table: Table, name: str, optional: bool) -> str | None:
    """The column of a table with a name; ``None`` if the table lacks an optional column."""
    column = matching_name(name, table.columns)
    if column is None and name == "score":
        column = matching_name(SIMILARITY, table.columns)
    if column is None and not optional:
        raise DataError(
            f"{table.name}: column '{name}' is missing "
            f"(it has: {shortened(printable(', '.join(table.columns)))})"
        )
    return column
