"""What published data sets share, whatever library brings them: unique ids, and judgements looked up as arrays.

A user cannot correct such data. So what a file of one's own would be refused for is left out, counted and noted here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.checks import check_grade
from opera.data.qrels import Qrels
from opera.data.store import DataBuilder

RULES = "2"
"""Part of the key of every published set: change it when what is left out of them changes."""


def check_published_ids(builder: DataBuilder, source: str) -> None:
    """Refuse a corpus or queries with nothing in them, or with an id that occurs twice."""
    for kind, table in builder.tables.items():
        if len(table) == 0:
            raise DataError(f"{source}: has no {'documents' if kind == 'corpus' else 'queries'}")
        counts = pc.value_counts(table.table["id"])
        repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        if len(repeated):
            raise DataError(
                f"{source}: the id {shown(repeated[0].as_py())} occurs twice in its {kind}; ids must be unique"
            )


def store_judgements(
    builder: DataBuilder,
    source: str,
    split: str,
    query_ids: pa.Array | pa.ChunkedArray,
    doc_ids: pa.Array | pa.ChunkedArray,
    grades: Iterable[object],
) -> None:
    """Add a split of judgements, parallel ``[M]``; a grade must be a whole number from -1000 to 1000.

    Left out are ids that are not there, and relevant pairs that name an empty text. Of repeated ones the highest grade
    counts.
    """
    place, queries, corpus = (
        f"{source}: split '{split}'",
        builder.tables["queries"],
        builder.tables["corpus"],
    )
    grade = np.array([check_grade(place, own) for own in grades], dtype=np.int32)
    query, doc = queries.find_rows(query_ids), corpus.find_rows(doc_ids)
    known = np.ones(len(grade), dtype=bool)
    for rows, ids, what in ((query, query_ids, "queries"), (doc, doc_ids, "documents")):
        unknown = known & (rows < 0)
        if unknown.any():
            count = (
                f"{split}: left out {int(unknown.sum()):,} judgements of {what} that are not there"
            )
            builder.notes.append(f"{count}, such as {shown(ids[int(np.argmax(unknown))].as_py())}")
        known &= ~unknown
    order = np.lexsort((-grade, doc, query))
    order = order[known[order]]
    query, doc, grade = query[order], doc[order], grade[order]
    repeat = np.concatenate([[False], (query[1:] == query[:-1]) & (doc[1:] == doc[:-1])])[
        : len(order)
    ]
    if repeat.any():
        builder.notes.append(
            f"{split}: merged {int(repeat.sum()):,} repeated judgements, at their highest grade"
        )
    query, doc, grade = query[~repeat], doc[~repeat], grade[~repeat]
    empty = np.isin(query, queries.empty_rows()) | np.isin(doc, corpus.empty_rows())
    empty &= grade > 0
    if empty.any():
        first = int(np.argmax(empty))
        pair = f"query {shown(queries.ids(query[[first]])[0])}, document {shown(corpus.ids(doc[[first]])[0])}"
        builder.left_out[split] = int(empty.sum())
        builder.notes.append(
            f"{split}: left out {builder.left_out[split]:,} relevant pairs that name an empty text, such as {pair}"
        )
    if empty.all():  # also where nothing is left
        raise DataError(f"{place} has no judgements{' but of empty texts' if len(empty) else ''}")
    builder.splits[split] = Qrels.from_arrays(query[~empty], doc[~empty], grade[~empty])
