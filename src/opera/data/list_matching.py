"""Find the pairs of lists, such as decisions, in the data: by their ids, else by their texts.

Ids change with a new export of the same data, for example ids that are row numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.arrays import IntArray, slices
from opera.core.errors import DataError
from opera.core.terminal import counted, shortened, shown
from opera.data.id_lists import CUT, IdList, read_lists
from opera.data.mixture import Mixture
from opera.data.qrels import TeacherScores
from opera.data.texts import TextTable, without_extra_space

SPREADSHEET = (
    "is this {} list for other data, or did a spreadsheet change the ids, as in 00123 to 123? "
    "Import the columns of ids as text"
)
EXAMPLES, SHOWN = 3, 60
"""Pairs that a note names if they are not in the data, and characters of their texts."""
BEGINNING = 100
"""Characters by which OPERA looks for a text, before it compares the whole text."""
TEXTS_AT_ONCE = 10_000
ID_COLUMNS = {"query": "query_id", "document": "doc_id"}
"""The columns of ids of a list, by the column of the texts."""


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


def match_pairs(
    lists: Iterable[IdList], mixture: Mixture, noun: str, least: float
) -> tuple[pa.Table, list[str]]:
    """Find the pairs of lists in the data. All functions that take lists call this one.

    Args:
        lists: the lists. If they have the columns ``query`` and ``document``, a pair whose ids are
            unknown, or whose texts differ from the data's, is found by its texts instead. A listed
            text may be the beginning of the data's text.
        mixture: the data sets.
        noun: what a row of a list is, for messages.
        least: the least fraction of a list's pairs that must be in the data. At least one pair
            must be in the data.

    Returns:
        The rows whose pairs are in the data, with the columns ``query_row`` and ``doc_row``, rows
        of the joined tables, and ``set``, the number of the data set. A row that was found by its
        texts is repeated for each copy of its pair. Notes say how many rows were found by text,
        and which rows OPERA ignores.

    Raises:
        DataError: if too few pairs are in the data.
    """
    tables, notes = [], list[str]()
    for listed in lists:
        matches = _find_pairs(listed, mixture)
        rows, unmatched = len(listed.table), matches.unmatched
        count = f"{listed.path}: {rows - len(unmatched):,} of {counted(rows, noun)} match "
        count += mixture.joined.title
        if len(unmatched) and rows - len(unmatched) < max(1, least * rows):
            raise DataError(f"{count}; {_why_unmatched(listed, mixture, unmatched[0], noun)}")
        notes += listed.notes
        if matches.by_text:
            count += f" ({matches.by_text:,} by text, as their ids do not match)"
        if len(unmatched):
            examples = [_pair_name(listed, row) for row in unmatched[:EXAMPLES]]
            examples += [f"{len(unmatched) - EXAMPLES:,} more"] * (len(unmatched) > EXAMPLES)
            count += f"; OPERA ignores {'; '.join(examples)}"
        if matches.by_text or len(unmatched):
            notes.append(count)
        table = listed.table.take(pa.array(matches.list_rows))
        columns = {"query_row": matches.query_rows, "doc_row": matches.doc_rows}
        for name, values in {**columns, "set": matches.set_numbers}.items():
            table = table.append_column(name, pa.array(values, pa.int64()))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="default"), notes


class _Matches(NamedTuple):
    """The pairs of a list that are in the data.

    Attributes:
        list_rows: int64 ``[m]``, rows of the list, ascending.
        query_rows: int64 ``[m]``, rows of the joined query table.
        doc_rows: int64 ``[m]``, rows of the joined corpus.
        set_numbers: int64 ``[m]``, the data set of each pair.
        by_text: how many rows of the list were found by their texts.
        unmatched: the rows of the list that are not in the data.
    """

    list_rows: NDArray[np.int64]
    query_rows: NDArray[np.int64]
    doc_rows: NDArray[np.int64]
    set_numbers: NDArray[np.int64]
    by_text: int
    unmatched: list[int]


def _find_pairs(listed: IdList, mixture: Mixture) -> _Matches:
    """Find each row of a list by its ids, or else by its texts."""
    table, tables = listed.table, _text_tables(mixture)
    rows_by_id = [_rows_by_id(table, side, texts) for side, texts in tables.items()]
    list_rows = np.arange(len(table))
    pairs = _in_one_data_set(mixture, np.stack([list_rows, *rows_by_id], axis=1))
    by_id = len(pairs)
    if tables.keys() <= set(table.column_names):
        rest = np.setdiff1d(list_rows, pairs[:, 0])
        pairs = np.concatenate(
            [pairs, _in_one_data_set(mixture, _pairs_by_text(table, rest, tables))]
        )
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    matched_rows, query_rows, doc_rows = pairs.T
    unmatched = np.setdiff1d(list_rows, matched_rows).tolist()
    by_text = len(table) - by_id - len(unmatched)
    set_numbers = mixture.sets_of_queries(query_rows)
    return _Matches(matched_rows, query_rows, doc_rows, set_numbers, by_text, unmatched)


def _text_tables(mixture: Mixture) -> dict[str, TextTable]:
    """Return the joined tables of queries and documents, by the name of the texts in a list."""
    return {"query": mixture.joined.queries, "document": mixture.joined.corpus}


def _in_one_data_set(mixture: Mixture, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Select the pairs, int64 ``[m, 3]`` of list row, query row and document row, whose rows are
    known (not -1) and belong to the same data set.
    """
    _, query_rows, doc_rows = pairs.T
    in_one_set = mixture.sets_of_queries(query_rows) == mixture.sets_of_documents(doc_rows)
    return pairs[(pairs >= 0).all(axis=1) & in_one_set]


def _rows_by_id(table: pa.Table, side: str, texts: TextTable) -> NDArray[np.int64]:
    """The text row of each id, or -1 if the id is unknown or the list has another text for it.

    White space around an id is ignored: editors may add it. An empty text of the data is unknown.
    """
    ids = table[ID_COLUMNS[side]].cast(pa.string())  # an empty column has the type null
    text_rows, trimmed = texts.find_rows(ids), texts.find_rows(pc.utf8_trim_whitespace(ids))
    text_rows = np.where(text_rows < 0, trimmed, text_rows)
    if side in table.column_names:
        known = np.flatnonzero(text_rows >= 0)
        listed = table[side].take(pa.array(known)).to_pylist()
        in_data = texts.texts(text_rows[known])
        differ = [
            bool(text) and not _begins(text, listed_text)
            for text, listed_text in zip(in_data, listed, strict=True)
        ]
        text_rows[known[np.array(differ, dtype=bool)]] = -1
    return text_rows


def _begins(text: str, beginning: str) -> bool:
    """Whether a text starts with ``beginning``; ignores white space and :data:`CUT`."""
    return without_extra_space(text).startswith(without_extra_space(beginning.removesuffix(CUT)))


def _pairs_by_text(
    table: pa.Table, list_rows: IntArray, tables: Mapping[str, TextTable]
) -> NDArray[np.int64]:
    """Find rows of a list by their texts: int64 ``[m, 3]``, list row, query row, document row."""
    listed = [table[side].take(pa.array(list_rows)).to_pylist() for side in tables]
    query_rows, doc_rows = map(_rows_by_text, listed, tables.values())
    pairs = [
        (list_row, *text_rows)
        for list_row, query, document in zip(list_rows.tolist(), *listed, strict=True)
        for text_rows in product(query_rows.get(query, ()), doc_rows.get(document, ()))
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)


def _rows_by_text(listed: Iterable[str], texts: TextTable) -> dict[str, list[int]]:
    """Return the text rows of each listed text and its copies; white space does not matter.

    A listed text that ends with :data:`CUT` stands for the text that begins with it. If several
    different texts do, it stands for none.
    """
    beginnings = {text: without_extra_space(text.removesuffix(CUT)) for text in listed}
    size = min([BEGINNING, *(len(beginning) for beginning in beginnings.values() if beginning)])
    by_start = defaultdict[str, list[str]](list)
    for listed_text, beginning in beginnings.items():
        if beginning:
            by_start[beginning[:size]].append(listed_text)
    rows_of = defaultdict[str, dict[str, list[int]]](lambda: defaultdict(list))
    for rows in slices(len(texts) if by_start else 0, TEXTS_AT_ONCE):
        for row, raw_text in enumerate(texts.texts(rows), start=rows.start):
            text = without_extra_space(raw_text)
            for listed_text in by_start.get(text[:size], ()):
                is_cut = listed_text.endswith(CUT) and text.startswith(beginnings[listed_text])
                if is_cut or text == without_extra_space(listed_text):
                    rows_of[listed_text][text].append(row)
    return {
        listed_text: next(iter(rows_by_text.values()))
        for listed_text, rows_by_text in rows_of.items()
        if len(rows_by_text) == 1
    }


def _why_unmatched(listed: IdList, mixture: Mixture, list_row: int, noun: str) -> str:
    """Say why OPERA did not find a row of a list, and what to do."""
    row = listed.table.slice(list_row, 1)
    for side, texts in _text_tables(mixture).items():
        (text_row,) = _rows_by_id(row.select([*ID_COLUMNS.values()]), side, texts)
        if text_row >= 0 and _rows_by_id(row, side, texts)[0] < 0:
            text_id, listed_text = (
                shown(row[name][0].as_py()) for name in (ID_COLUMNS[side], side)
            )
            (text,) = texts.texts(np.array([text_row]))
            return (
                f"{side} {text_id} is {listed_text} in the list but {shown(text)} in the data. Is "
                f"this {noun} list for other data? If you only corrected texts, delete the column "
                f"'{side}'"
            )
    advice = SPREADSHEET.format(noun)
    if not mixture.is_single:
        names = ", ".join(data_set.name for data_set in mixture.data_sets)
        advice = f"ids must be SET/ID, where SET is one of {names}"
    return f"{_pair_name(listed, list_row)} is not there; {advice}"


def _pair_name(listed: IdList, list_row: int) -> str:
    """Name a pair by its texts, since ids may mean something else in new data; else by its ids."""
    named_by = [
        side if side in listed.table.column_names else column for side, column in ID_COLUMNS.items()
    ]
    query, document = (
        shown(shortened(listed.table[name][list_row].as_py(), SHOWN)) for name in named_by
    )
    return f"query {query}, document {document}"
