"""Add to the lists of a run where its pairs are in the user's file, and the user's own columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from opera.data.id_lists import USER_COLUMN, cut
from opera.data.source_rows import source_rows
from opera.labels.review import SHORT
from opera.run.session import Session

Cells = dict[str, str]
"""The file and the line of a pair, and the user's columns."""


def with_user_columns(
    session: Session, review: dict[str, Any], suspicious: pa.Table | None
) -> tuple[dict[str, Any], pa.Table | None]:
    """Add file, line and the user's columns to review items and to the suspicious pairs.

    Nothing is added for data that are not tables in files.

    Args:
        session: the run.
        review: the items of ``review.json``; they get the key ``row``.
        suspicious: the columns of ``suspicious_pairs.csv``.
    """
    items = list(_with_labels(review))
    pairs = [pair for _, pair in items]
    if suspicious is not None:
        pairs += zip(
            *(suspicious[name].to_pylist() for name in ("query_id", "doc_id")), strict=True
        )
    rows = _cells(session, list(dict.fromkeys(pairs)))
    for item, pair in items:
        if cells := rows.get(pair):
            item["row"] = cells
    names = list(dict.fromkeys(chain.from_iterable(rows.values())))
    if suspicious is not None:
        listed = pairs[len(items) :]
        for name in names:
            column = [rows.get(pair, {}).get(name, "") for pair in listed]
            suspicious = suspicious.append_column(name, pa.array(column, pa.string()))
    return review, suspicious


def _with_labels(review: dict[str, Any]) -> Iterator[tuple[dict[str, Any], tuple[str, str]]]:
    """Yield the items of all lists with the pair whose row describes them. For missing labels and
    changed queries, that is a labelled pair of the query; items that show none are left out.
    """
    for split in ("train", "test"):
        for item in review[split]["pairs"]:
            yield item, (item["query_id"], item["doc_id"])
        for item in review[split]["missing"]:
            for other in item["others"][:1]:
                yield item, (item["query_id"], other["doc_id"])
    for item in (*review["changed"]["losses"], *review["changed"]["gains"]):
        documents = (*item["final_documents"], *item["base_documents"])
        labelled = [document["doc_id"] for document in documents if document["labelled"]]
        for doc_id in labelled[:1]:
            yield item, (item["query_id"], doc_id)


def _cells(session: Session, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], Cells]:
    """Find the cells of pairs of ids, in the tables of each data set."""
    if not pairs:
        return {}
    mixture = session.prepared.data.with_splits
    recorded = session.record.data_sets
    query_ids, doc_ids = map(list, zip(*pairs, strict=True))
    query_rows = mixture.joined.queries.find_rows(query_ids)
    doc_rows = mixture.joined.corpus.find_rows(doc_ids)
    set_numbers = mixture.sets_of_queries(query_rows)
    cells: dict[tuple[str, str], Cells] = {}
    for set_number, (data, first_rows) in enumerate(
        zip(mixture.data_sets, mixture.first_rows, strict=True)
    ):
        in_set = np.flatnonzero(set_numbers == set_number)
        text_rows = query_rows[in_set] - first_rows[0], doc_rows[in_set] - first_rows[1]
        rows = source_rows(data, recorded[set_number].source, text_rows)
        cells |= {
            pairs[position]: {
                "file": row.file,
                "line": str(row.line),
                **{f"{USER_COLUMN}{name}": cut(text, SHORT) for name, text in row.values.items()},
            }
            for position, row in zip(in_set.tolist(), rows, strict=True)
            if row is not None
        }
    return cells
