"""Number the queries, or the documents, that pairs name: by the rows of a table, or in order of first appearance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.data.tables.pairs import Texts
from opera.data.tables.values import DIGEST, digests
from opera.data.texts import TextRow, TextTable

AT_ONCE = 2_000_000
"""Ids held as texts until they are looked up; each look-up hashes the whole table."""


class KnownTexts:
    """Ids of a table that is there; or its texts, where none of the first values is an id.

    Args:
        table: the texts.
    """

    def __init__(self, table: TextTable) -> None:
        self._table = table
        self._texts: pa.Array | None = None
        self._pending: list[pa.StringArray] = []
        self._waiting = 0
        self._rows: list[NDArray[np.int32]] = []

    def add(self, texts: Texts) -> None:
        """Take the ids of some rows."""
        self._pending.append(texts.texts)
        self._waiting += len(texts)
        if self._waiting >= AT_ONCE:
            self._look_up()

    def rows(self) -> NDArray[np.int32]:
        """Return the row of each id that was added, -1 for an unknown one: int32."""
        self._look_up()
        return np.concatenate([np.empty(0, dtype=np.int32), *self._rows])

    @property
    def by_text(self) -> bool:
        """Whether the values are texts of the table."""
        return self._texts is not None

    def _look_up(self) -> None:
        values = pa.chunked_array(self._pending, pa.string())
        rows = np.empty(0) if self.by_text else self._table.find_rows(values)
        if self.by_text or (not self._rows and len(rows) and (rows < 0).all()):
            rows = self._look_up_texts(rows)
        self._rows.append(rows.astype(np.int32))
        self._pending, self._waiting = [], 0

    def _look_up_texts(self, by_id: NDArray[Any]) -> NDArray[Any]:
        """Find texts by their hashes; where none is found, the values were ids after all."""
        known = self._texts
        if known is None:
            known = pa.concat_arrays([digests(chunk) for chunk in self._table.table["text"].chunks])
        wanted = pa.concat_arrays(
            [pa.array([], DIGEST), *(digests(part) for part in self._pending)]
        )
        rows = np.asarray(pc.fill_null(pc.index_in(wanted, known), -1))
        if self._texts is None and (rows < 0).all():
            return by_id
        self._texts = known
        return rows


class NewTexts:
    """Texts that stand in the pairs. Only hashes stay in memory; the texts are read again to be written.

    Args:
        letter: what made-up ids begin with.
    """

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._pending: list[pa.Array] = []
        self._waiting = 0
        self._known: pa.Array = pa.array([], DIGEST)
        self._rows: list[NDArray[np.int32]] = []
        self._contents: list[NDArray[np.uint64]] = []

    def add(self, texts: Texts) -> None:
        """Take the texts of some rows. Those with one id, else those with one title and text, are one."""
        key = whole = digests(texts.texts, texts.titles)
        if texts.ids is not None:
            key = digests(texts.ids)
            self._contents.append(np.frombuffer(whole.buffers()[1], dtype=np.uint64)[::2].copy())
        self._pending.append(key)
        self._waiting += len(texts)
        if self._waiting >= AT_ONCE:
            self._number()

    def rows(self) -> NDArray[np.int32]:
        """Return the row of each text that was added: int32."""
        if self._pending:
            self._number()
        if len(self._rows) != 1:
            self._rows = [np.concatenate([np.empty(0, dtype=np.int32), *self._rows])]
        return self._rows[0]

    def _number(self) -> None:
        """Number the hashes that wait; new ones follow those known, in order."""
        keys = pa.concat_arrays(self._pending)
        new = keys.filter(pc.invert(pc.is_in(keys, self._known))).unique()
        self._known = pa.concat_arrays([self._known, new])
        self._rows.append(np.asarray(pc.index_in(keys, self._known), dtype=np.int32))
        self._pending, self._waiting = [], 0

    def first(self) -> NDArray[np.bool_]:
        """Whether each text that was added is the first of its row: bool."""
        highest = np.maximum.accumulate(self.rows())
        return np.diff(highest, prepend=np.int32(-1)) > 0

    def clash(self) -> int | None:
        """Return the number of a text that differs from an earlier one with the same id; ``None``: there is none."""
        if not self._contents:
            return None
        contents = np.concatenate(self._contents)
        wrong = contents != contents[np.flatnonzero(self.first())][self.rows()]
        return int(np.argmax(wrong)) if wrong.any() else None

    def write(self, added: Iterator[Texts]) -> Iterator[TextRow]:
        """Yield id, title and text of each row.

        Args:
            added: what was given to :meth:`add`, once more.
        """
        first, start, row = self.first(), 0, 0
        for texts in added:
            for at in np.flatnonzero(first[start : start + len(texts)]).tolist():
                identifier = f"{self._letter}{row}" if texts.ids is None else texts.ids[at].as_py()
                title = "" if texts.titles is None else texts.titles[at].as_py()
                yield identifier, title, texts.texts[at].as_py()
                row += 1
            start += len(texts)
