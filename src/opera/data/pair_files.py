"""Read pairs of a data set from a table of ids, such as those that a teacher scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import printable, shortened, shown
from opera.data.adapters import add_list
from opera.data.columns import Columns
from opera.data.combined import each_set, first_rows, with_sets
from opera.data.qrels import TeacherScores
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.table_files import open_pairs
from opera.data.text_files import ALWAYS_UTF8
from opera.data.texts import TextTable, without_extra_space

IDS = ("query_id", "doc_id")
TEXTS = ("query", "document")
CUT = "…"
"""What ends a text of a list that is longer in the data."""


def cut(text: str, length: int) -> str:
    """Return a text, or its first characters and :data:`CUT`."""
    return text if len(text) <= length else text[:length] + CUT


def begins(text: str, beginning: str) -> bool:
    """Whether a text begins as a list says; white space and :data:`CUT` make no difference."""
    return without_extra_space(text).startswith(without_extra_space(beginning.removesuffix(CUT)))


ROLES = {"doc_id": "document_id", "decision": "title", "first_rank": "weight"}
"""The columns of the relation that hold those of a list, where they have other names."""
SIMILARITY = "similarity"
"""What the column of scores is called where an embedding model wrote it."""


def with_teacher(data: RetrievalData, path: Path) -> RetrievalData:
    """Return the data with the scores of a file, in place of those that came with the data.

    Args:
        data: the data set.
        path: a table with the columns ``query_id``, ``doc_id`` and ``score`` (or ``similarity``);
            others are not read. Scores of pairs that the data lack are left out; a note counts
            them.

    Raises:
        DataError: for a file that cannot be read, a score that is no finite number, or no pair of
            these data.
    """
    scored = read_pairs(path, data, "was it scored on it?", needed=["score"])
    scores = np.array(scored.values["score"], dtype=np.float64)
    sets = []
    for number, (part, *first) in enumerate(zip(each_set(data), *first_rows(data), strict=False)):
        here = scored.sets == number
        rows = scored.query_rows[here] - first[0], scored.doc_rows[here] - first[1]
        teacher = TeacherScores.from_arrays(*rows, scores[here]) if here.any() else None
        sets.append(replace(part, teacher=teacher))
    if unknown := scored.count - len(scores):
        count = f"{unknown:,} of {scored.count:,} scores"
        note = f"{path}: {count} are of pairs that the data lack: they are not used"
        sets[0] = replace(sets[0], notes=(*sets[0].notes, note))
    return with_sets(data, sets)


@dataclass(frozen=True)
class ListedPairs:
    """The rows of a file that name a query and a document of the data.

    Attributes:
        query_rows: int64 ``[m]``, rows of the query table.
        doc_rows: int64 ``[m]``, rows of the corpus.
        sets: int64 ``[m]``, which of several data sets a pair is of, from 0.
        values: the texts of the columns that were asked for and of both ids, ``[m]`` each; those
            that the file lacks are missing.
        count: how many rows the file has.
    """

    query_rows: IntArray
    doc_rows: IntArray
    sets: IntArray
    values: Mapping[str, list[str]]
    count: int


def read_pairs(
    path: Path,
    data: RetrievalData,
    advice: str,
    needed: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> ListedPairs:
    """Read a table of ids, and find its pairs in the data; other columns are not read.

    Args:
        path: the table.
        data: the data set.
        advice: what may be wrong if no pair is of these data.
        needed: columns that it must have besides ``query_id`` and ``doc_id``.
        optional: columns that it may have. Of these ``query`` and ``document`` must be the data's
            texts, or begin them, since ids that number the rows of a file are others after a
            change.

    Raises:
        DataError: for a file that cannot be read, of other texts, or of no pair of these data.
    """
    listed = read_list(path, needed, optional)
    queries, documents = listed["query_id"], listed["doc_id"]
    rows = _rows_of(queries, data.queries), _rows_of(documents, data.corpus)
    of_query, of_document = (
        np.searchsorted(firsts, rows_of_set, side="right") - 1
        for firsts, rows_of_set in zip(first_rows(data), rows, strict=True)
    )
    known = (rows[0] >= 0) & (rows[1] >= 0) & (of_query == of_document)
    for name, texts, of_texts in zip(TEXTS, (data.queries, data.corpus), rows, strict=True):
        if name in listed.column_names and len(known):
            _check_texts(path, name, listed[name].to_pylist(), texts, of_texts)
    if not known.any() and (len(known) or needed):
        if data.sets:
            advice = f"ids must be SET/ID, of the sets {', '.join(part.name for part in data.sets)}"
        example = (
            f"query {shown(queries[0].as_py())}, document {shown(documents[0].as_py())}"
            if len(queries)
            else "none"
        )
        raise DataError(
            f"{path}: none of its {len(queries):,} pairs is of {data.title} ({example}); {advice}"
        )
    values = listed.filter(pa.array(known)).to_pydict()
    return ListedPairs(rows[0][known], rows[1][known], of_query[known], values, len(known))


def read_list(path: Path, needed: Sequence[str] = (), optional: Sequence[str] = ()) -> pa.Table:
    """Read a table of ids without the data: ``query_id``, ``doc_id``, ``needed``, and those of
    ``optional`` that it has, all of them text.

    Raises:
        DataError: for a file that cannot be read, or without a column that it must have.
    """
    with TemporaryDirectory() as folder:
        relation = Relation(Path(folder), fast=False)
        for _, table in open_pairs([("train", str(path))], Columns(), [], ALWAYS_UTF8):
            columns = [*IDS, *needed]
            names = dict(zip(columns, _columns(table.name, table.columns, columns), strict=True))
            names |= {name: name for name in optional if name in table.columns}
            add_list(relation, table, {ROLES.get(name, name): names[name] for name in names})
        chosen = ", ".join(f"{ROLES.get(name, name)} AS {name}" for name in names)
        return relation.table(f"SELECT {chosen} FROM pairs")


def _rows_of(ids: pa.ChunkedArray, table: TextTable) -> IntArray:
    """The row of each id, -1 where there is none; white space around an id may be an editor's."""
    rows, trimmed = table.find_rows(ids), table.find_rows(pc.utf8_trim_whitespace(ids))
    return np.where(rows < 0, trimmed, rows)


def _check_texts(
    path: Path, name: str, listed: list[str], table: TextTable, rows: IntArray
) -> None:
    """Refuse a list whose texts are not those that the data have under the same ids."""
    there = np.flatnonzero(rows >= 0)
    texts = table.texts(rows[there])
    said = [listed[place] for place in there]
    other = [place for place, text in enumerate(said) if not begins(texts[place], text)]
    if other:
        first = other[0]
        raise DataError(
            f"{path}: {name} {shown(table.ids(rows[there[first : first + 1]])[0])} is "
            f"{shown(said[first])} there and {shown(texts[first])} in the data, and so are "
            f"{len(other):,} of {len(there):,} rows: where a file has no ids they number its "
            "texts, and are others after a change; make the list anew, or remove its column "
            f"{shown(name)} if only texts were mended"
        )


def _columns(place: str, has: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the names that the columns have in a file."""
    names = [SIMILARITY if name == "score" and name not in has else name for name in columns]
    for name, wanted in zip(names, columns, strict=True):
        if name not in has:
            listed = shortened(printable(", ".join(has)))
            raise DataError(f"{place}: column '{wanted}' is missing (it has: {listed})")
    return names
