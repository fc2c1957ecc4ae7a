"""Read the scores of a teacher from a file: ids of queries and documents, and a score per pair."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.errors import DataError
from opera.core.reading import open_file
from opera.core.terminal import printable, shortened, shown
from opera.data.combined import each_set, first_rows, with_sets
from opera.data.lines import json_objects, numbered_lines
from opera.data.retrieval_data import RetrievalData
from opera.data.tables.values import as_ids
from opera.data.teacher import TeacherScores

SUFFIXES = (".parquet", ".tsv", ".jsonl")
IDS = ("query_id", "doc_id")
SCORES = ("score", "similarity")
"""The column of a reranker's scores, and of an embedding model's."""


def with_teacher(data: RetrievalData, path: Path) -> RetrievalData:
    """Return the data with the scores of a file, in place of those that came with the data.

    Args:
        data: the data set.
        path: ``.parquet``, ``.tsv`` with a header, or ``.jsonl``, with the columns ``query_id``, ``doc_id`` and
            ``score`` (or ``similarity``); others are not read. Scores of pairs that the data lack are left out; a note
            counts them.

    Raises:
        DataError: for a file that cannot be read, a score that is no finite number, or no pair of these data.
    """
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"{path}: must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}; the suffix is the format"
        )
    try:
        queries, documents, scores = (
            _read_parquet(path) if path.suffix == ".parquet" else _read_lines(path)
        )
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    query_rows, doc_rows = data.queries.find_rows(queries), data.corpus.find_rows(documents)
    known = (query_rows >= 0) & (doc_rows >= 0)
    of_query, of_document = (
        np.searchsorted(firsts, rows, side="right")
        for firsts, rows in zip(first_rows(data), (query_rows, doc_rows), strict=True)
    )
    known &= of_query == of_document
    if not known.any():
        example = (
            f"query {shown(queries[0].as_py())}, document {shown(documents[0].as_py())}"
            if len(queries)
            else "none"
        )
        advice = f"ids must be SET/ID, of the sets {', '.join(own.name for own in data.sets)}"
        raise DataError(
            f"{path}: none of its {len(scores):,} pairs is of {data.title} ({example}); "
            f"{advice if data.sets else 'was it scored on it?'}"
        )
    sets = []
    for number, own in enumerate(each_set(data)):
        first_query, first_document = (firsts[number] for firsts in first_rows(data))
        here = known & (of_query == number + 1)
        rows = (query_rows[here] - first_query, doc_rows[here] - first_document)
        teacher = TeacherScores.from_arrays(*rows, scores[here]) if here.any() else None
        sets.append(replace(own, teacher=teacher))
    if left := int((~known).sum()):
        note = f"{path}: {left:,} of {len(known):,} scores are of pairs that the data lack: they are not used"
        sets[0] = replace(sets[0], notes=(*sets[0].notes, note))
    return with_sets(data, sets)


def _read_parquet(path: Path) -> tuple[pa.ChunkedArray, pa.ChunkedArray, np.ndarray]:
    with open_file(path) as opened:
        try:
            with pq.ParquetFile(opened) as file:
                names = file.schema_arrow.names
                columns = [*IDS, _score_column(str(path), names)]
                table = file.read(columns=columns)
            ids = [_ids(path, table[name], name) for name in IDS]
            scores = table[columns[2]].cast(pa.float32()).to_numpy()
        except (DataError, OSError):
            raise
        except Exception as error:  # Arrow raises many types on spoilt files
            reason = shortened(printable(" ".join(str(error).split()))) or type(error).__name__
            raise DataError(f"{path}: is not a Parquet file that can be read ({reason})") from None
    if bad := np.flatnonzero(~np.isfinite(scores)).tolist():
        raise DataError(
            f"{path}: row {bad[0] + 1}: score must be a finite number, got {scores[bad[0]]}"
        )
    return ids[0], ids[1], scores


def _ids(path: Path, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if column.null_count:
        raise DataError(f"{path}: every row must have a query_id and a doc_id, and some have none")
    parts: list[pa.StringArray] = []

    def place(at: int) -> str:
        return f"{path}, row {sum(map(len, parts)) + at + 1}"

    for chunk in column.chunks:
        parts.append(as_ids(chunk, name, place))
    return pa.chunked_array(parts, pa.string())


def _read_lines(path: Path) -> tuple[pa.ChunkedArray, pa.ChunkedArray, np.ndarray]:
    rows = list(_tsv_rows(path) if path.suffix == ".tsv" else _jsonl_rows(path))
    ids = [pa.chunked_array([[row[at] for row in rows]], pa.string()) for at in (0, 1)]
    return ids[0], ids[1], np.array([row[2] for row in rows], dtype=np.float32)


def _tsv_rows(path: Path) -> Iterator[tuple[str, str, float]]:
    places: list[int] = []
    header: list[str] = []
    for number, line in numbered_lines(path):
        cells = next(csv.reader([line], delimiter="\t"))
        if not places:
            header = cells
            places = [
                header.index(name) for name in (*IDS, _score_column(f"{path}:{number}", header))
            ]
        elif len(cells) != len(header):
            raise DataError(
                f"{path}:{number}: has {len(cells)} columns, and the header {len(header)}"
            )
        else:
            query, doc, score = (cells[place] for place in places)
            yield query, doc, _number(path, number, score)


def _jsonl_rows(path: Path) -> Iterator[tuple[str, str, float]]:
    for number, record in json_objects(path):
        if "pos" in record:
            raise DataError(
                f"{path}:{number}: is a training file with texts; pass it as the data, whose pos_scores and neg_scores "
                "are used"
            )
        score = _score_column(f"{path}:{number}", list(record))
        for name in IDS:
            if not isinstance(record[name], str):
                raise DataError(
                    f"{path}:{number}: column '{name}' must be a string, got {shown(record[name])}"
                )
        yield record["query_id"], record["doc_id"], _number(path, number, record[score])


def _score_column(place: str, names: list[str]) -> str:
    """Return the name of the column of scores, where all columns are there."""
    has = shortened(printable(", ".join(names)))
    for name in (*IDS, SCORES[0]):
        if name not in names and not (name == SCORES[0] and SCORES[1] in names):
            raise DataError(f"{place}: column '{name}' is missing (it has: {has})")
    return SCORES[0] if SCORES[0] in names else SCORES[1]


def _number(path: Path, line: int, value: Any) -> float:
    try:
        if (
            isinstance(value, bool)
            or not math.isfinite(number := float(value))
            or abs(number) > 1e30
        ):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise DataError(
            f"{path}:{line}: score must be a finite number, got {shown(value)}"
        ) from None
    return number
