"""Read pairs of a data set from a table of ids: those that a teacher scored, those to leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.arrays import FloatArray, IntArray
from opera.core.errors import DataError
from opera.core.terminal import printable, shortened, shown
from opera.data.adapters import add_list
from opera.data.columns import Columns
from opera.data.combined import each_set, first_rows, moved, with_sets
from opera.data.identity import judges_texts_of
from opera.data.qrels import Qrels, TeacherScores
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.table_files import open_pairs
from opera.data.text_files import ALWAYS_UTF8
from opera.data.texts import TextTable

IDS = ("query_id", "doc_id")
TEXTS = ("query", "document")
CUT = "…"
"""What ends a text of a list that is longer in the data."""
LEFT = ("train", "dev")
"""The splits whose pairs may be left out: test stays as it is."""
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
    scored = _read(path, data, (*IDS, "score"), "was it scored on it?")
    sets = []
    for part, (rows, scores) in zip(each_set(data), scored.of_sets, strict=True):
        teacher = TeacherScores.from_arrays(*rows, scores) if len(scores) else None
        sets.append(replace(part, teacher=teacher))
    if scored.unknown:
        count = f"{scored.unknown:,} of {scored.rows:,} scores"
        note = f"{path}: {count} are of pairs that the data lack: they are not used"
        sets[0] = replace(sets[0], notes=(*sets[0].notes, note))
    return with_sets(data, sets)


def without_pairs(data: RetrievalData, paths: Sequence[Path]) -> RetrievalData:
    """Return the data without the pairs of files, such as a run's ``suspicious_pairs.csv``; a note
    counts them. Test stays as it is.

    Args:
        data: the data set.
        paths: tables with the columns ``query_id`` and ``doc_id``; where they have ``query`` or
            ``document`` these must be the data's texts, or begin them, since ids that number the
            rows of a file are others after a change.

    Raises:
        DataError: for a file that cannot be read, is of other texts, or names no relevant pair of
            train or dev, or all of train's.
    """
    lists = [_read(path, data, IDS, "is it the list of another data set?") for path in paths]
    path, listed_pairs = (
        ", ".join(map(str, paths)),
        sum(pairs_of_list.rows for pairs_of_list in lists),
    )
    firsts = list(zip(*first_rows(data), strict=True))[:-1]
    parts = [
        (rows[0] + query, rows[1] + document)
        for pairs_of_list in lists
        for (rows, _), (query, document) in zip(pairs_of_list.of_sets, firsts, strict=True)
    ]
    query_rows, doc_rows = map(np.concatenate, zip(*parts, strict=True))
    listed = Qrels.from_arrays(query_rows, doc_rows, np.ones(len(doc_rows), dtype=np.int64))
    sets, dropped, tested = [], 0, 0
    for part, first in zip(each_set(data), firsts, strict=True):
        left = dict(part.splits)
        for split in set(LEFT) & left.keys():
            false = judges_texts_of(data, listed, moved(left[split], *first))
            dropped += int((left[split].grades[false] > 0).sum())
            left[split] = left[split].select_judgements(~false)
        if (test := part.splits.get("test")) is not None:
            of_test = judges_texts_of(data, listed, moved(test, *first))
            tested += int((test.grades[of_test] > 0).sum())
        sets.append(replace(part, splits=left))
    if (listed_pairs and not dropped) or not any(
        part.splits["train"].has_relevant.any() for part in sets
    ):
        what = "no relevant pair" if not dropped else "every pair"
        raise DataError(f"{path}: names {what} of train: nothing would be left out, or left")
    count = f"{dropped:,} pairs of train and dev are left out, for the {listed_pairs:,} of {path}"
    count += f"; {tested:,} are of test, which stays as it is" if tested else ""
    sets[0] = replace(sets[0], notes=(*sets[0].notes, count))
    return with_sets(data, sets)


@dataclass(frozen=True)
class _Found:
    """The pairs of a file that the data know: of each set the rows of queries and documents, and
    the scores; how many the file has, and how many are unknown.
    """

    of_sets: list[tuple[tuple[IntArray, IntArray], FloatArray]]
    rows: int
    unknown: int


def _read(path: Path, data: RetrievalData, columns: Sequence[str], advice: str) -> _Found:
    """Read a file's pairs, and find them in the data.

    Raises:
        DataError: if none is there.
    """
    with TemporaryDirectory() as folder:
        relation = Relation(Path(folder), fast=False)
        for _, table in open_pairs([("train", str(path))], Columns(), [], ALWAYS_UTF8):
            names = dict(zip(columns, _columns(table.name, table.columns, columns), strict=True))
            names |= {name: name for name in TEXTS if name in table.columns and columns == IDS}
            names["document_id"] = names.pop("doc_id")
            add_list(relation, table, names)
        listed = relation.table("SELECT query_id, document_id, query, document, score FROM pairs")
    queries, documents = listed["query_id"], listed["document_id"]
    scores = pc.fill_null(listed["score"].cast(pa.float64()), 0).to_numpy()
    rows = _rows_of(queries, data.queries), _rows_of(documents, data.corpus)
    of_query, of_document = (
        np.searchsorted(firsts, rows_of_set, side="right")
        for firsts, rows_of_set in zip(first_rows(data), rows, strict=True)
    )
    known = (rows[0] >= 0) & (rows[1] >= 0) & (of_query == of_document)
    for name, texts, of_texts in zip(TEXTS, (data.queries, data.corpus), rows, strict=True):
        if listed[name].null_count == 0 and len(known):
            _check_texts(path, name, listed[name].to_pylist(), texts, of_texts)
    if not known.any() and (len(known) or columns != IDS):
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
    of_sets = []
    for number in range(len(each_set(data))):
        here = known & (of_query == number + 1)
        first_query, first_document = (firsts[number] for firsts in first_rows(data))
        of_sets.append(
            ((rows[0][here] - first_query, rows[1][here] - first_document), scores[here])
        )
    return _Found(of_sets, len(known), int((~known).sum()))


def _rows_of(ids: pa.ChunkedArray, table: TextTable) -> IntArray:
    """The row of each id, -1 where there is none; white space around an id may be an editor's."""
    rows, trimmed = table.find_rows(ids), table.find_rows(pc.utf8_trim_whitespace(ids))
    return np.where(rows < 0, trimmed, rows)


def _check_texts(
    path: Path, name: str, listed: list[str], table: TextTable, rows: IntArray
) -> None:
    """Refuse a list whose texts are not those that the data have under the same ids."""
    there = np.flatnonzero(rows >= 0)
    texts = [" ".join(text.split()) for text in table.texts(rows[there])]
    said = [" ".join(listed[place].removesuffix(CUT).split()) for place in there]
    other = [place for place, text in enumerate(said) if not texts[place].startswith(text)]
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
    if "pos" in has:
        raise DataError(
            f"{place}: is a training file with texts; pass it as the data, whose pos_scores and "
            "neg_scores are used"
        )
    names = [SIMILARITY if name == "score" and name not in has else name for name in columns]
    for name, wanted in zip(names, columns, strict=True):
        if name not in has:
            listed = shortened(printable(", ".join(has)))
            raise DataError(f"{place}: column '{wanted}' is missing (it has: {listed})")
    return names
