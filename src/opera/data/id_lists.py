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
TEXTS = ("query", "document")
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
    parts = zip(mixture.data_sets, mixture.first_rows, strict=True)
    for number, (data_set, (first_query, first_document)) in enumerate(parts):
        scored = set_numbers == number
        rows = query_rows[scored] - first_query, doc_rows[scored] - first_document
        teacher = TeacherScores.from_arrays(*rows, scores[scored]) if scored.any() else None
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
    """Find the pairs of lists in the data. Every door that takes lists calls this.

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
        queries, documents = table["query_id"], table["doc_id"]
        rows = _rows_of(queries, joined.queries), _rows_of(documents, joined.corpus)
        of_query, of_document = (
            np.searchsorted(firsts, rows_of_set, side="right") - 1
            for firsts, rows_of_set in zip(np.array(mixture.first_rows).T, rows, strict=True)
        )
        known = (rows[0] >= 0) & (rows[1] >= 0) & (of_query == of_document)
        for name, texts, of_texts in zip(TEXTS, (joined.queries, joined.corpus), rows, strict=True):
            if name in table.column_names and len(known):
                _check_texts(path, name, table[name].to_pylist(), texts, of_texts)
        count = f"{path}: {known.sum():,} of {counted(len(known), noun)} match {joined.title}"
        if len(known) and known.sum() < max(1, least * len(known)):
            row = int(np.flatnonzero(~known)[0])
            pair = f"query {shown(queries[row].as_py())}, document {shown(documents[row].as_py())}"
            advice = SPREADSHEET.format(noun)
            if not mixture.is_single:
                names = ", ".join(data_set.name for data_set in mixture.data_sets)
                advice = f"ids must be SET/ID, where SET is one of {names}"
            raise DataError(f"{count}; {pair} is not there; {advice}")
        notes += list_notes + [f"{count}; OPERA ignores the rest"] * (not known.all())
        numbers = {"query_row": rows[0], "doc_row": rows[1], "set": of_query}
        for name, values in numbers.items():
            table = table.append_column(name, pa.array(values, pa.int64()))
        tables.append(table.filter(pa.array(known)))
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
            rows = _checked_rows(relation, table, columns)
        lists.append(IdList(file, frozenset(map(normal, table.columns)), rows, notes))
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


def _rows_of(ids: pa.ChunkedArray, table: TextTable) -> IntArray:
    """The row of each id, or -1. White space around an id is ignored, since editors may add it."""
    ids = ids.cast(pa.string())  # an empty column has the type null
    rows, trimmed = table.find_rows(ids), table.find_rows(pc.utf8_trim_whitespace(ids))
    return np.where(rows < 0, trimmed, rows)


def _check_texts(
    path: Path, name: str, listed: list[str], table: TextTable, rows: IntArray
) -> None:
    """Reject a list that has other texts than the data under the same ids. An empty text of the
    data is unknown."""
    known = np.flatnonzero(rows >= 0)
    texts = table.texts(rows[known])
    listed = [listed[number] for number in known]
    different = [
        number
        for number, text in enumerate(listed)
        if texts[number] and not begins(texts[number], text)
    ]
    if different:
        first = different[0]
        raise DataError(
            f"{path}: {name} {shown(table.ids(rows[known[first : first + 1]])[0])} is "
            f"{shown(listed[first])} in the list but {shown(texts[first])} in the data "
            f"({len(different):,} of {len(known):,} rows differ); ids that are row numbers change "
            "with the data, so write the list again; if you only corrected texts, delete the "
            f"column {shown(name)}"
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
