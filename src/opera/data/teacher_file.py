"""Read the scores of a teacher from a table: ids of queries and documents, and a score per pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.terminal import printable, shortened, shown
from opera.data.combined import each_set, first_rows, with_sets
from opera.data.qrels import TeacherScores
from opera.data.retrieval_data import RetrievalData
from opera.data.tables.columns import Columns
from opera.data.tables.files import open_pairs
from opera.data.tables.load import parts_of
from opera.data.tables.values import Problems

COLUMNS = ("query_id", "doc_id", "score")
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
    queries, documents, scores = _read(path)
    query_rows, doc_rows = data.queries.find_rows(queries), data.corpus.find_rows(documents)
    of_query, of_document = (
        np.searchsorted(firsts, rows, side="right")
        for firsts, rows in zip(first_rows(data), (query_rows, doc_rows), strict=True)
    )
    known = (query_rows >= 0) & (doc_rows >= 0) & (of_query == of_document)
    if not known.any():
        advice = "was it scored on it?"
        if data.sets:
            advice = f"ids must be SET/ID, of the sets {', '.join(own.name for own in data.sets)}"
        example = (
            f"query {shown(queries[0].as_py())}, document {shown(documents[0].as_py())}"
            if len(queries)
            else "none"
        )
        raise DataError(
            f"{path}: none of its {len(scores):,} pairs is of {data.title} ({example}); {advice}"
        )
    sets = []
    for number, own in enumerate(each_set(data)):
        first_query, first_document = (firsts[number] for firsts in first_rows(data))
        here = known & (of_query == number + 1)
        rows = (query_rows[here] - first_query, doc_rows[here] - first_document)
        teacher = TeacherScores.from_arrays(*rows, scores[here]) if here.any() else None
        sets.append(replace(own, teacher=teacher))
    if left := int((~known).sum()):
        count = f"{left:,} of {len(known):,} scores"
        note = f"{path}: {count} are of pairs that the data lack: they are not used"
        sets[0] = replace(sets[0], notes=(*sets[0].notes, note))
    return with_sets(data, sets)


def _read(path: Path) -> tuple[pa.ChunkedArray, pa.ChunkedArray, NDArray[np.float64]]:
    """Return ids of queries and of documents, and scores, each ``[K]``."""
    found: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    problems, n_rows = Problems(), 0
    for _, table in open_pairs([("train", str(path))], Columns(), []):
        names = dict(
            zip(COLUMNS, ([own] for own in _columns(table.name, table.columns)), strict=True)
        )
        for part in parts_of(table, names, problems):
            for name in COLUMNS:
                (own,) = part[name]
                found[name].append(own.numbers() if name == "score" else own.ids())
            n_rows += part.n_rows
    problems.check(n_rows)
    *ids, scores = found.values()
    query, document = (pa.chunked_array(own, pa.string()) for own in ids)
    return query, document, np.concatenate([np.empty(0), *scores])


def _columns(place: str, has: Sequence[str]) -> list[str]:
    """Return the names of the three columns."""
    if "pos" in has:
        raise DataError(
            f"{place}: is a training file with texts; pass it as the data, whose pos_scores and "
            "neg_scores are used"
        )
    names = [SIMILARITY if name == "score" and name not in has else name for name in COLUMNS]
    for name, wanted in zip(names, COLUMNS, strict=True):
        if name not in has:
            listed = shortened(printable(", ".join(has)))
            raise DataError(f"{place}: column '{wanted}' is missing (it has: {listed})")
    return names
