"""Read pairs of a data set from a table of ids, such as a teacher's scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import counted, printable, shortened, shown
from opera.data.add_tables import column_text
from opera.data.columns import Columns, matching_name, normal
from opera.data.delimited_tables import DelimitedTable
from opera.data.mixture import ListOptions, Mixture
from opera.data.qrels import TeacherScores
from opera.data.relation import Relation, Rule, id_rules, number_rules
from opera.data.table_files import files_in, open_texts
from opera.data.tables import Table
from opera.data.texts import TextTable, without_extra_space

IDS = ("query_id", "doc_id")
CUT = "…"
"""The end of a shortened text in a list."""


def cut(text: str, length: int) -> str:
    """Return a text, or its first ``length`` characters and :data:`CUT`."""
    return text if len(text) <= length else text[:length] + CUT


def begins(text: str, beginning: str) -> bool:
    """Whether a text starts with ``beginning``; ignores white space and :data:`CUT`."""
    return without_extra_space(text).startswith(without_extra_space(beginning.removesuffix(CUT)))


RANK = Rule(
    "first_rank",
    "number(first_rank) NOT BETWEEN 0 AND 1",
    "column {column} must be from 0 to 1, got {}",
    numeric=True,
)
"""The rule of a decision's first rank, a fraction of documents."""
SIMILARITY = "similarity"
"""The name of the column of scores if an embedding model wrote it."""
SPREADSHEET = (
    "is this {} list for other data, or did a spreadsheet change the ids, as in 00123 to 123? "
    "Import the columns of ids as text"
)


def with_teacher(mixture: Mixture, path: Path) -> Mixture:
    """Return the data with the scores of a file, instead of scores that came with the data.

    Args:
        mixture: the data sets.
        path: a table with the columns ``query_id``, ``doc_id`` and ``score`` (or ``similarity``),
            or a folder of tables. Other columns are ignored, and so are scores of pairs that are
            not in the data; a note counts them.

    Raises:
        DataError: if the file cannot be read, if a score is not a finite number, or if no pair is
            in the data.
    """
    lists = read_lists([path], mixture.list_options, needed=["score"])
    pairs, notes = match_pairs(lists, mixture, "score", 0)
    scores = np.array(pairs["score"].to_pylist(), dtype=np.float64)
    query_rows, doc_rows, set_numbers = (
        np.array(pairs[name].to_pylist(), dtype=np.int64)
        for name in ("query_row", "doc_row", "set")
    )
    data_sets = []
    sets = zip(mixture.data_sets, mixture.first_rows, strict=True)
    for set_number, (data_set, (first_query_row, first_doc_row)) in enumerate(sets):
        scored = set_numbers == set_number
        rows_in_set = query_rows[scored] - first_query_row, doc_rows[scored] - first_doc_row
        teacher = TeacherScores.from_arrays(*rows_in_set, scores[scored]) if scored.any() else None
        data_sets.append(replace(data_set, teacher=teacher))
    data_sets[0] = replace(data_sets[0], notes=(*data_sets[0].notes, *notes))
    return mixture.with_data_sets(data_sets)


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


def match_pairs(
    lists: Iterable[IdList], mixture: Mixture, noun: str, least: float
) -> tuple[pa.Table, list[str]]:
    """Find the pairs of lists in the data. All functions that take lists call this one.

    Args:
        lists: the lists. Their columns ``query`` and ``document``, if any, must match the texts of
            the data, or their beginnings: an id that is a row number changes with the file.
        mixture: the data sets.
        noun: what a row of a list is, for messages.
        least: the least fraction of a list's pairs that must be in the data. At least one pair
            must be in the data.

    Returns:
        The rows whose pairs are in the data, with the columns ``query_row`` and ``doc_row``, rows
        of the joined tables, and ``set``, the number of the data set; and notes about rows that
        OPERA ignores.

    Raises:
        DataError: if the texts of a list do not match the data, or too few pairs are in the data.
    """
    tables, notes, joined = [], list[str](), mixture.joined
    for path, _, table, list_notes in lists:
        query_ids, doc_ids = table["query_id"], table["doc_id"]
        query_rows, doc_rows = (
            _find_rows(query_ids, joined.queries),
            _find_rows(doc_ids, joined.corpus),
        )
        first_query_rows, first_doc_rows = np.array(mixture.first_rows).T
        query_sets = np.searchsorted(first_query_rows, query_rows, side="right") - 1
        doc_sets = np.searchsorted(first_doc_rows, doc_rows, side="right") - 1
        in_data = (query_rows >= 0) & (doc_rows >= 0) & (query_sets == doc_sets)
        sides = ("query", joined.queries, query_rows), ("document", joined.corpus, doc_rows)
        for name, texts, text_rows in sides:
            if name in table.column_names and len(in_data):
                _check_texts(path, name, table[name].to_pylist(), texts, text_rows)
        count = f"{path}: {in_data.sum():,} of {counted(len(in_data), noun)} match {joined.title}"
        if len(in_data) and in_data.sum() < max(1, least * len(in_data)):
            list_row = int(np.flatnonzero(~in_data)[0])
            query_id, doc_id = query_ids[list_row].as_py(), doc_ids[list_row].as_py()
            pair = f"query {shown(query_id)}, document {shown(doc_id)}"
            advice = SPREADSHEET.format(noun)
            if not mixture.is_single:
                names = ", ".join(data_set.name for data_set in mixture.data_sets)
                advice = f"ids must be SET/ID, where SET is one of {names}"
            raise DataError(f"{count}; {pair} is not there; {advice}")
        notes += list_notes + [f"{count}; OPERA ignores the rest"] * (not in_data.all())
        columns_to_add = {"query_row": query_rows, "doc_row": doc_rows, "set": query_sets}
        for name, values in columns_to_add.items():
            table = table.append_column(name, pa.array(values, pa.int64()))
        tables.append(table.filter(pa.array(in_data)))
    return pa.concat_tables(tables, promote_options="default"), notes


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
        notes: list[str] = []
        (table,) = open_texts(str(file), "pairs", Columns(), notes, options.encoding)
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


def _find_rows(ids: pa.ChunkedArray, table: TextTable) -> IntArray:
    """The text row of each id, or -1. White space around an id is ignored: editors may add it."""
    ids = ids.cast(pa.string())  # an empty column has the type null
    text_rows, trimmed = table.find_rows(ids), table.find_rows(pc.utf8_trim_whitespace(ids))
    return np.where(text_rows < 0, trimmed, text_rows)


def _check_texts(
    path: Path, name: str, listed: list[str], table: TextTable, text_rows: IntArray
) -> None:
    """Reject a list that has other texts than the data under the same ids. An empty text of the
    data is unknown."""
    known_positions = np.flatnonzero(text_rows >= 0)
    texts = table.texts(text_rows[known_positions])
    listed = [listed[position] for position in known_positions]
    wrong_positions = [
        position
        for position, text in enumerate(listed)
        if texts[position] and not begins(texts[position], text)
    ]
    if wrong_positions:
        example = wrong_positions[0]
        (text_id,) = table.ids(text_rows[known_positions[[example]]])
        raise DataError(
            f"{path}: {name} {shown(text_id)} is {shown(listed[example])} in the list but "
            f"{shown(texts[example])} in the data ({len(wrong_positions):,} of {len(texts):,} rows "
            "differ); ids that are row numbers change with the data, so write the list again; if "
            f"you only corrected texts, delete the column {shown(name)}"
        )


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
