"""What published data sets share, whatever library brings them: checked texts, and judgements collected as arrays.

A user cannot correct such data. So what a file of one's own would be refused for is left out, counted and noted here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.errors import DataError
from opera.core.progress import counted
from opera.core.terminal import shown
from opera.data.checks import check_grade, check_id, check_string
from opera.data.qrels import Qrels
from opera.data.store import DataBuilder
from opera.data.texts import LONGEST_TEXT, TextRow

RULES = (
    "2"  # part of the key of every published set: change it when what is left out of them changes
)
AT_ONCE = 200_000
"""Judgements held as Python strings."""


def published_texts(
    rows: Iterable[TextRow], source: str, kind: str, notes: list[str], total: int | None = None
) -> Iterator[TextRow]:
    """Check the ids of published texts, and replace halves of characters, which no file can hold.

    Args:
        rows: id, title and text of each.
        source: what the user passed.
        kind: ``document`` or ``query``.
        notes: gets a count of what was replaced.
        total: how many there are, for the progress bar, where known.

    Raises:
        DataError: for an id that cannot stand in a line, and for a text that is none.
    """
    cut = 0
    for identifier, title, text in counted(
        rows, f"reading {source}", total, f"{kind}s" if kind == "document" else "queries"
    ):
        check_id(f"{source}: {kind} id", identifier)
        for value in (title, text):
            if not isinstance(value, str) or len(value) > LONGEST_TEXT:
                check_string(f"{source}: {kind} {shown(identifier)}: its text", value)
        if _encodable(title) and _encodable(text):
            yield identifier, title, text
        else:
            cut += 1
            yield identifier, _repaired(title), _repaired(text)
    if cut:
        notes.append(f"{cut:,} {kind} texts held half a character, which became a question mark")


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _repaired(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def check_published_ids(builder: DataBuilder, source: str) -> None:
    """Check that no id of the corpus or of a query occurs twice.

    Raises:
        DataError: naming one that does.
    """
    for kind, table in builder.tables.items():
        ids = table.table["id"]
        if len(table) == 0:
            raise DataError(f"{source}: has no {'documents' if kind == 'corpus' else 'queries'}")
        if pc.count_distinct(ids).as_py() != len(table):
            counts = pc.value_counts(ids)
            repeated = (
                counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0].as_py()
            )
            raise DataError(
                f"{source}: the id {shown(repeated)} occurs twice in its {kind}; ids must be unique"
            )


class Judgements:
    """Collects the judgements of one split; ids are looked up once, when all are there.

    Args:
        source: what the user passed.
        split: name of the split.
    """

    def __init__(self, source: str, split: str) -> None:
        self._place = f"{source}: split '{split}'"
        self._split = split
        self._pending: tuple[list[str], list[str]] = ([], [])
        self._ids: tuple[list[pa.Array], list[pa.Array]] = ([], [])
        self._grades = array("i")

    def add(self, query_id: str, doc_id: str, grade: object) -> None:
        """Add a judgement.

        Raises:
            DataError: for a grade that is no whole number from -1000 to 1000.
        """
        self._pending[0].append(query_id)
        self._pending[1].append(doc_id)
        self._grades.append(check_grade(self._place, grade))
        if len(self._pending[0]) == AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        for pending, batches in zip(self._pending, self._ids, strict=True):
            batches.append(pa.array(pending, pa.string()))
            pending.clear()

    def store(self, builder: DataBuilder) -> None:
        """Look the ids up in the texts that were written, and add the split with notes on what was left out.

        Raises:
            DataError: if nothing is left.
        """
        self._flush()
        tables, rows = (builder.tables["queries"], builder.tables["corpus"]), []
        for table, batches in zip(tables, self._ids, strict=True):
            rows.append(table.find_rows(pa.chunked_array(batches, pa.string())))
        known = np.ones(len(self._grades), dtype=bool)
        for found, batches, what in zip(rows, self._ids, ("queries", "documents"), strict=True):
            unknown = known & (found < 0)
            if unknown.any():
                first = pa.chunked_array(batches, pa.string())[int(np.argmax(unknown))].as_py()
                count = f"{self._split}: left out {int(unknown.sum()):,} judgements of {what} that are not there"
                builder.notes.append(f"{count}, such as {shown(first)}")
            known &= ~unknown
        if not known.any():
            raise DataError(f"{self._place} has no judgements")
        query, doc = rows[0][known], rows[1][known]
        merged = self._merged(query, doc, np.asarray(self._grades)[known], builder.notes)
        builder.splits[self._split] = Qrels.from_arrays(*self._with_text(builder, *merged))

    def _with_text(self, builder: DataBuilder, *merged: np.ndarray) -> list[np.ndarray]:
        """Leave out relevant pairs whose query, or whose document's title and text, is empty."""
        query, doc, grade = merged
        empty = np.isin(query, builder.tables["queries"].empty_rows())
        empty |= np.isin(doc, builder.tables["corpus"].empty_rows())
        empty &= grade > 0
        if not empty.any():
            return list(merged)
        if empty.all():
            raise DataError(f"{self._place} has no judgements but of empty texts")
        first = int(np.argmax(empty))
        pair = f"query {shown(builder.tables['queries'].ids(query[[first]])[0])}"
        pair += f", document {shown(builder.tables['corpus'].ids(doc[[first]])[0])}"
        count = builder.left_out[self._split] = int(empty.sum())
        builder.notes.append(
            f"{self._split}: left out {count:,} relevant pairs that name an empty text, such as {pair}"
        )
        return [column[~empty] for column in merged]

    def _merged(
        self, query: np.ndarray, doc: np.ndarray, grade: np.ndarray, notes: list[str]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Merge repeated judgements into the highest grade."""
        order = np.lexsort((-grade, doc, query))
        query, doc, grade = query[order], doc[order], grade[order]
        repeat = np.concatenate([[False], (query[1:] == query[:-1]) & (doc[1:] == doc[:-1])])
        if repeat.any():
            notes.append(
                f"{self._split}: merged {int(repeat.sum()):,} repeated judgements, at their highest grade"
            )
        return query[~repeat], doc[~repeat], grade[~repeat]
