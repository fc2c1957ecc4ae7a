"""Texts and relevance qrels: texts stay in memory-mapped Arrow files, qrels are integer arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.errors import DataError

CorpusText = Literal["title_text", "text"]

TEXT_SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string())])


def join_title(title: str, text: str) -> str:
    """Title, a space, text: the BEIR convention (paper.md, row 11)."""
    return f"{title} {text}".strip() if title else text


@dataclass(frozen=True)
class TextTable:
    """Documents or queries, one a row, memory-mapped; rows are addressed by number.

    Attributes:
        table: Arrow table with the string columns ``id``, ``title``, ``text``.
    """

    table: pa.Table

    @classmethod
    def open(cls, path: Path) -> TextTable:
        """Memory-map an Arrow IPC file that OPERA wrote."""
        return cls(pa.ipc.open_file(pa.memory_map(str(path))).read_all())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def texts(self, rows: IntArray | slice | None = None, choice: CorpusText = "title_text") -> list[str]:
        """Return the texts of some rows (default all), title joined in front unless ``choice="text"``."""
        bodies = self._column("text", rows)
        if choice == "text":
            return bodies
        return [join_title(title, body) for title, body in zip(self._column("title", rows), bodies, strict=True)]

    def ids(self, rows: IntArray | slice | None = None) -> list[str]:
        """Return the ids of some rows (default all)."""
        return self._column("id", rows)

    def rows_of(self, ids: Sequence[str] | pa.Array) -> NDArray[np.int64]:
        """Find the row of each id: int64, -1 for an id that is not there."""
        wanted = ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string())
        places = pc.fill_null(pc.index_in(wanted, self.table["id"]), -1)
        return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)

    @cached_property
    def id_order(self) -> NDArray[np.int32]:
        """Each row's place when ids are sorted, int32: what breaks ties between equal scores."""
        order = pc.sort_indices(self.table["id"]).to_numpy()
        place = np.empty(len(order), dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return place

    def refuse_empty(self, choice: CorpusText, what: str) -> None:
        """Refuse a table in which ``choice`` leaves a row without text.

        Raises:
            DataError: naming the first such row.
        """
        if choice == "text":
            row = pc.index(pc.utf8_length(pc.utf8_trim_whitespace(self.table["text"])), 0).as_py()
            if row >= 0:
                raise DataError(
                    f"corpus_text=text: {what} '{self.ids(slice(row, row + 1))[0]}' has a title but no text; "
                    "use corpus_text=title_text"
                )

    def _column(self, name: str, rows: IntArray | slice | None) -> list[str]:
        column = self.table[name]
        if rows is None:
            return list(column.to_pylist())
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            return list(column.slice(start, max(0, stop - start)).to_pylist())
        # Chunk by chunk: Arrow's own take on a chunked string column copies the whole column first.
        wanted = np.asarray(rows, dtype=np.int64)
        chunk_of = np.searchsorted(self._chunk_starts, wanted, side="right") - 1
        values = [""] * len(wanted)
        for chunk in np.unique(chunk_of).tolist():
            places = np.flatnonzero(chunk_of == chunk)
            local = pa.array(wanted[places] - self._chunk_starts[chunk])
            for place, value in zip(places.tolist(), column.chunk(chunk).take(local).to_pylist(), strict=True):
                values[place] = value
        return values

    @cached_property
    def _chunk_starts(self) -> NDArray[np.int64]:
        lengths = [len(chunk) for chunk in self.table["id"].chunks]
        return np.cumsum([0, *lengths[:-1]], dtype=np.int64)
