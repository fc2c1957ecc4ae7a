"""Read pairs of a data set from a table of ids, such as a teacher's scores."""

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
from opera.core.terminal import counted, printable, shortened, shown
from opera.data.add_tables import add_list
from opera.data.columns import Columns
from opera.data.combined import data_sets, first_rows, with_sets
from opera.data.qrels import TeacherScores
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.table_files import open_pairs
from opera.data.text_files import ALWAYS_UTF8
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


ROLES = {"doc_id": "document_id", "decision": "title", "first_rank": "weight"}
"""The columns of the relation for those columns of a list that have another name there."""
SIMILARITY = "similarity"
"""The name of the column of scores if an embedding model wrote it."""


def with_teacher(data: RetrievalData, path: Path) -> RetrievalData:
    """Return the data with the scores of a file, instead of scores that came with the data.

    Args:
        data: the data set.
        path: a table with the columns ``query_id``, ``doc_id`` and ``score`` (or ``similarity``).
            Other columns are ignored, and so are scores of pairs that are not in the data; a note
            counts them.

    Raises:
        DataError: if the file cannot be read, if a score is not a finite number, or if no pair is
            in the data.
    """
    scored = read_pairs(path, data, "are they scores of other data?", needed=["score"])
    scores = np.array(scored.values["score"], dtype=np.float64)
    sets = []
    for number, (data_set, *first) in enumerate(
        zip(data_sets(data), *first_rows(data), strict=False)
    ):
        here = scored.sets == number
        rows = scored.query_rows[here] - first[0], scored.doc_rows[here] - first[1]
        teacher = TeacherScores.from_arrays(*rows, scores[here]) if here.any() else None
        sets.append(replace(data_set, teacher=teacher))
    if unknown := scored.count - len(scores):
        count = f"{unknown:,} of {scored.count:,} scores"
        note = f"{path}: ignored {count}, because the data do not contain their pairs"
        sets[0] = replace(sets[0], notes=(*sets[0].notes, note))
    return with_sets(data, sets)


@dataclass(frozen=True)
class ListedPairs:
    """The rows of a file whose query and document are in the data.

    Attributes:
        query_rows: int64 ``[m]``, rows of the query table.
        doc_rows: int64 ``[m]``, rows of the corpus.
        sets: int64 ``[m]``, the number of each pair's data set, from 0.
        values: the texts ``[m]`` of both ids and of the requested columns that the file has; an
            empty number is ``None``.
        count: the number of rows in the file.
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
    """Read a table of ids, and find its pairs in the data.

    Args:
        path: the table.
        data: the data set.
        advice: the likely mistake, for the error if no pair is in the data.
        needed: required columns, in addition to ``query_id`` and ``doc_id``.
        optional: columns that the table may have. ``query`` and ``document`` must match the texts
            of the data, or their beginnings: an id that is a row number changes with the file.

    Raises:
        DataError: if the file cannot be read, its texts do not match the data, or no pair is in the
            data.
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
            names = ", ".join(data_set.name for data_set in data.sets)
            advice = f"ids must be SET/ID, where SET is one of {names}"
        example = (
            f"query {shown(queries[0].as_py())}, document {shown(documents[0].as_py())}"
            if len(queries)
            else "none"
        )
        raise DataError(
            f"{path}: has {counted(len(queries), 'pair')}, but none is in {data.title} "
            f"({example}); {advice}"
        )
    values = listed.filter(pa.array(known)).to_pydict()
    return ListedPairs(rows[0][known], rows[1][known], of_query[known], values, len(known))


def read_list(path: Path, needed: Sequence[str] = (), optional: Sequence[str] = ()) -> pa.Table:
    """Read a table of ids without the data. All columns are text.

    The columns are ``query_id``, ``doc_id``, ``needed``, and those ``optional`` ones that it has.

    Raises:
        DataError: if the file cannot be read, or a needed column is missing.
    """
    with TemporaryDirectory() as folder:
        relation = Relation(Path(folder))
        for _, table in open_pairs([("train", str(path))], Columns(), [], ALWAYS_UTF8):
            columns = [*IDS, *needed]
            names = dict(zip(columns, _columns(table.name, table.columns, columns), strict=True))
            names |= {name: name for name in optional if name in table.columns}
            add_list(relation, table, {ROLES.get(name, name): names[name] for name in names})
        chosen = ", ".join(f"{ROLES.get(name, name)} AS {name}" for name in names)
        return relation.table(f"SELECT {chosen} FROM pairs")


def _rows_of(ids: pa.ChunkedArray, table: TextTable) -> IntArray:
    """The row of each id, or -1. White space around an id is ignored, since editors may add it."""
    rows, trimmed = table.find_rows(ids), table.find_rows(pc.utf8_trim_whitespace(ids))
    return np.where(rows < 0, trimmed, rows)


def _check_texts(
    path: Path, name: str, listed: list[str], table: TextTable, rows: IntArray
) -> None:
    """Reject a list that has other texts than the data under the same ids."""
    known = np.flatnonzero(rows >= 0)
    texts = table.texts(rows[known])
    listed = [listed[place] for place in known]
    different = [place for place, text in enumerate(listed) if not begins(texts[place], text)]
    if different:
        first = different[0]
        raise DataError(
            f"{path}: {name} {shown(table.ids(rows[known[first : first + 1]])[0])} is "
            f"{shown(listed[first])} in the list but {shown(texts[first])} in the data "
            f"({len(different):,} of {len(known):,} rows differ); ids that are row numbers change "
            "with the data, so write the list again; if you only corrected texts, delete the "
            f"column {shown(name)}"
        )


def _columns(place: str, has: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the names of the needed columns in a file."""
    names = [SIMILARITY if name == "score" and name not in has else name for name in columns]
    for name, wanted in zip(names, columns, strict=True):
        if name not in has:
            listed = shortened(printable(", ".join(has)))
            raise DataError(f"{place}: column '{wanted}' is missing (it has: {listed})")
    return names
