"""Find copies: documents or queries with the same text but different ids.

White space is normalised, and a document's title is part of its text. Qrels, measures and files
still use ids.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray, concatenated_ranges, distinct_numbers, is_among
from opera.core.terminal import log, shown
from opera.data.pairs import pair_keys, split_keys
from opera.data.qrels import Qrels, TeacherScores
from opera.data.retrieval_data import RetrievalData


def text_keys(data: RetrievalData, qrels: Qrels) -> NDArray[np.int64]:
    """One number per judgement, equal for judgements of the same two texts: int64 ``[M]``."""
    query_rows = qrels.query_rows[qrels.query_index]
    return pair_keys(data.query_group[query_rows], data.document_group[qrels.doc_rows])


def by_text(data: RetrievalData, qrels: Qrels) -> Qrels:
    """Return qrels by the groups of queries and documents, each pair once, with grade 1."""
    query_groups, document_groups = split_keys(distinct_numbers(text_keys(data, qrels)))
    return Qrels.from_arrays(
        query_groups, document_groups, np.ones(len(document_groups), dtype=np.int32)
    )


def query_documents(
    data: RetrievalData, query_rows: IntArray
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the documents whose text, with or without the title, equals the text of a query.

    Args:
        data: the data set.
        query_rows: int ``[n]``, rows of the query table.

    Returns:
        Positions in ``query_rows``, and document rows: both int64 ``[m]``.
    """
    query_digests, titled_rows = data.queries.digests[query_rows], data.corpus.titled_rows
    positions, doc_rows = equal_positions(query_digests, data.corpus.digests)
    positions_by_text, titled_by_text = equal_positions(
        query_digests, data.corpus.text_digests[titled_rows]
    )
    return (
        np.concatenate([positions, positions_by_text]),
        np.concatenate([doc_rows, titled_rows[titled_by_text]]),
    )


def equal_positions(
    left: NDArray[Any], right: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all i and j with ``left[i] == right[j]``: both int64, i ascending."""
    order = np.argsort(right, kind="stable")
    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    starts, ends = (np.searchsorted(right, left, side, order) for side in sides)
    positions = concatenated_ranges(starts, ends - starts)
    return np.repeat(np.arange(len(left)), ends - starts), order[positions]


def documents_that_are_queries(data: RetrievalData, qrels: Qrels) -> NDArray[np.int64]:
    """Find the document with the same id and text as the query, as in ArguAna and Quora.

    BEIR leaves this document out of the query's ranking, unless it is relevant to the query.

    Returns:
        int64 ``[n]``, the document row of each judged query; -1 if there is none.
    """
    doc_rows = data.corpus.find_rows(data.queries.id_column(qrels.query_rows))
    query_indices = np.flatnonzero(doc_rows >= 0)
    texts = zip(
        data.queries.texts(qrels.query_rows[query_indices], "text"),
        data.corpus.texts(doc_rows[query_indices]),
        data.corpus.texts(doc_rows[query_indices], "text"),
        strict=True,
    )
    same = [query.split() in (titled.split(), text.split()) for query, titled, text in texts]
    judged = is_among(pair_keys(qrels.query_rows, doc_rows), qrels.relevant().keys)
    is_query = np.zeros(len(doc_rows), dtype=bool)
    is_query[query_indices] = same
    return np.where(is_query & ~judged, doc_rows, -1)


def copy_notes(data: RetrievalData) -> list[str]:
    """Return notes on how many documents and queries repeat the text of another."""
    notes = []
    for kind, table in (("documents", data.corpus), ("queries", data.queries)):
        copies = np.setdiff1d(table.copies, table.empty_rows())
        if len(copies):
            (text,) = table.texts(copies[:1])
            notes.append(
                f"copies among the {kind}: {len(copies):,}, such as {shown(text)}; training, "
                "negatives and splits treat copies as one, but measures do not: ids decide which "
                "copy ranks first"
            )
    return notes


def log_copies(data: RetrievalData) -> None:
    """Log the notes of :func:`copy_notes`."""
    for note in copy_notes(data):
        log.info("note: %s: %s", data.name, note)


def merge_copies(data: RetrievalData) -> RetrievalData:
    """Merge the training pairs with equal texts, so that a query trains once with all positives.

    A merged pair has the ids that come first in train, the highest grade, and the sum of the
    weights. Other splits do not change.
    """
    train = data.split("train")
    query_rows = first_row_of_copies(data.query_group, train.query_rows[train.query_index])
    doc_rows = first_row_of_copies(data.document_group, train.doc_rows)
    keys, merged_pair = np.unique(pair_keys(query_rows, doc_rows), return_inverse=True)
    grades = np.full(len(keys), np.iinfo(np.int32).min, dtype=np.int32)
    np.maximum.at(grades, merged_pair, train.grades)
    sums = (
        None
        if train.weights is None
        else np.bincount(merged_pair, train.weights).astype(np.float32)
    )
    merged = Qrels.from_arrays(*split_keys(keys), grades, sums)
    return replace(data, splits={**data.splits, "train": merged})


def teacher_by_text(data: RetrievalData, teacher: TeacherScores) -> TeacherScores:
    """Return a teacher's scores with groups of queries and documents instead of rows."""
    groups = data.query_group[teacher.query_rows], data.document_group[teacher.doc_rows]
    return TeacherScores.from_arrays(*groups, teacher.scores)


def first_row_of_copies(group: NDArray[np.int32], text_rows: IntArray) -> NDArray[np.int64]:
    """Return for each row the smallest one of ``text_rows`` with the same text: int64."""
    groups, group_numbers = np.unique(group[text_rows], return_inverse=True)
    first_rows = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(first_rows, group_numbers, text_rows)
    return first_rows[group_numbers]
