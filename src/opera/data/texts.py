"""Texts in memory-mapped Arrow files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from opera.core.arrays import BoolArray, IntArray
from opera.core.cache import locked
from opera.core.files import replace_file
from opera.core.terminal import counted, shown

CorpusText = Literal["title_text", "text"]
"""The encoded part of a document: title and text joined, or only the text."""

TextRow = tuple[str, str, str]  # id, title, text
TEXT_SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string())])
ROWS_AT_ONCE = 1000
"""Rows that are Python strings at once, in a loop over a table."""
COLUMN_ROWS = 65_536
"""Rows of a chunk of an Arrow column of ids."""
LONGEST_TEXT = 2**28
"""Characters of the longest text, title or id. A character has up to four bytes."""


SPACES = tuple(chr(code) for code in range(0x3001) if chr(code).isspace() and chr(code) != " ")
"""All characters of white space, except the space."""
ASCII_SPACES = tuple(filter(str.isascii, SPACES))


def without_extra_space(text: str) -> str:
    """Return a text with one space between its words, to compare texts."""
    for space in ASCII_SPACES if text.isascii() else SPACES:
        if space in text:
            return " ".join(text.split())
    if "  " in text or text[:1] == " " or text[-1:] == " ":
        return " ".join(text.split())
    return text  # four in five texts, in a third of the time


def digests_of(texts: Iterable[str], count: int) -> NDArray[np.uint64]:
    """Hash ``count`` texts with normalised white space: uint64 ``[count]``.

    With 64 bits, ten million different texts have a collision with a probability of 3 in a million.
    """
    digests = (xxh3_64_intdigest(without_extra_space(text).encode()) for text in texts)
    return np.fromiter(digests, np.uint64, count)


def first_copies(digests: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Return the first position with the same hash as each position: int32 ``[texts]``."""
    _, first_positions, groups = np.unique(digests, return_index=True, return_inverse=True)
    return np.asarray(first_positions[groups], dtype=np.int32)


Row = TypeVar("Row", bound=Sequence[Any])


def batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield lists of at most :data:`ROWS_AT_ONCE` rows. An Arrow array holds up to 2 GiB."""
    iterator = iter(rows)
    while batch := list(islice(iterator, ROWS_AT_ONCE)):
        yield batch


def text_batches(rows: Iterable[TextRow]) -> Iterator[pa.RecordBatch]:
    """Yield rows as Arrow batches of bounded size."""
    for batch in batched(rows):
        columns = (pa.array(column, pa.string()) for column in zip(*batch, strict=True))
        yield pa.record_batch(list(columns), schema=TEXT_SCHEMA)


def is_blank(texts: pa.ChunkedArray) -> BoolArray:
    """Whether each text is empty or white space: bool ``[texts]``."""
    has_characters = pc.binary_length(texts).cast(pa.bool_())
    is_blank = pc.or_(pc.invert(has_characters), pc.utf8_is_space(texts))
    # comparing with "" and to_numpy import pandas, which takes half a second
    return np.array(is_blank.to_pylist(), dtype=bool)


def open_arrow(path: Path) -> pa.Table:
    """Memory-map an Arrow IPC file that OPERA wrote."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@dataclass(frozen=True)
class TextTable:
    """Documents or queries in memory-mapped rows.

    The methods that a search needs use Arrow's buffers for numbers: Arrow's conversions import
    pandas, which takes half a second.

    Attributes:
        table: Arrow table with the string columns ``id``, ``title``, ``text``.
        file: the Arrow file, next to which the hashes of the texts are kept; ``None`` for a table
            in memory.
        parts: the tables that this table joins, if it joins several.
    """

    table: pa.Table
    file: Path | None = None
    parts: tuple[TextTable, ...] = ()

    @classmethod
    def open(cls, file: Path) -> TextTable:
        """Memory-map a table that OPERA wrote, and keep the hashes of its texts next to it."""
        return cls(open_arrow(file), file)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> TextTable:
        """Build a table in memory from texts by id, without titles."""
        rows = ((identifier, "", text) for identifier, text in texts.items())
        return cls(pa.Table.from_batches(text_batches(rows), schema=TEXT_SCHEMA))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def texts(
        self, rows: IntArray | slice | None = None, corpus_text: CorpusText = "title_text"
    ) -> list[str]:
        """Return the texts of some rows (default all), with their titles by default.

        A space joins title and text: the BEIR convention (erratum 11).
        """
        texts = self._column("text", rows)
        if corpus_text == "text":
            return texts
        return [
            f"{title} {text}".strip() if title else text
            for title, text in zip(self._column("title", rows), texts, strict=True)
        ]

    def by_turns(self, rows: IntArray, corpus_text: CorpusText = "text") -> Iterator[str]:
        """Yield the texts of many rows, by default without titles, with only a few in memory."""
        for start in range(0, len(rows), ROWS_AT_ONCE):
            yield from self.texts(rows[start : start + ROWS_AT_ONCE], corpus_text)

    def titles(self, rows: IntArray | slice | None = None) -> list[str]:
        """Return the titles of some rows (default all)."""
        return self._column("title", rows)

    def ids(self, rows: IntArray | slice | None = None) -> list[str]:
        """Return the ids of some rows (default all)."""
        return self._column("id", rows)

    def id_column(self, rows: IntArray) -> pa.ChunkedArray:
        """Return the ids of many rows as an Arrow column, which takes less memory than a list."""
        starts = range(0, len(rows), COLUMN_ROWS)
        return pa.chunked_array(
            (self.ids(rows[start : start + COLUMN_ROWS]) for start in starts), pa.string()
        )

    def select(self, rows: IntArray) -> TextTable:
        """Return a table of some rows, in this order.

        Arrow's own ``take`` fails on more than 2 GiB of text.
        """
        columns = ("id", "title", "text")
        chosen = zip(*(self._column(name, rows) for name in columns), strict=True)
        return TextTable(pa.Table.from_batches(text_batches(chosen), schema=TEXT_SCHEMA))

    def find_rows(self, ids: Sequence[str] | pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the row of each id, or -1 for an unknown id: int64 ``[len(ids)]``."""
        wanted = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, pa.string())
        rows = pc.fill_null(pc.index_in(wanted, self.table["id"]), -1)
        return np.asarray(rows.to_numpy(zero_copy_only=False), dtype=np.int64)

    @cached_property
    def id_rank(self) -> NDArray[np.int32]:
        """The rank of each row in ascending order of id, from 0: int32 ``[rows]``.

        It breaks ties between equal scores.
        """
        order = np.frombuffer(
            pc.sort_indices(self.table["id"]).buffers()[1], dtype=np.uint64, count=len(self)
        )
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """A hash of each row's title and text: uint64 ``[rows]``."""
        return self._digests("title_text")

    @cached_property
    def text_digests(self) -> NDArray[np.uint64]:
        """A hash of each row's text without its title: uint64 ``[rows]``."""
        return self._digests("text") if len(self.titled_rows) else self.digests

    def _digests(self, corpus_text: CorpusText) -> NDArray[np.uint64]:
        """Read the hashes of an earlier process, or hash all texts and keep the hashes."""
        if self.parts:
            return np.concatenate([part._digests(corpus_text) for part in self.parts])
        path = None if self.file is None else self.file.with_suffix(f".{corpus_text}.npy")
        if path is not None and path.is_file():
            return np.asarray(np.load(path, mmap_mode="r"))
        if path is None or not os.access(path.parent, os.W_OK):  # a cache may be read-only
            return digests_of(self.by_turns(np.arange(len(self)), corpus_text), len(self))
        with locked(path.with_name(f".{path.name}.lock")):  # other processes wait and read
            if not path.is_file():
                digests = digests_of(self.by_turns(np.arange(len(self)), corpus_text), len(self))
                replace_file(path, lambda temporary: _save(temporary, digests))
        return np.asarray(np.load(path, mmap_mode="r"))

    @cached_property
    def group(self) -> NDArray[np.int32]:
        """The first row with the same title and text as each row: int32 ``[rows]``.

        Rows of one group are the same document, or the same query.
        """
        return first_copies(self.digests)

    def byte_lengths(self) -> NDArray[np.int64]:
        """Return the number of bytes of each row's title and text: int64 ``[rows]``."""
        lengths = (pc.binary_length(self.table[name]).to_numpy() for name in ("title", "text"))
        return np.sum(list(lengths), axis=0, dtype=np.int64)

    @property
    def titled_rows(self) -> NDArray[np.int64]:
        """The rows with a title, ascending: int64."""
        has_title = pc.binary_length(self.table["title"]).cast(pa.bool_())
        return np.flatnonzero(has_title.to_pylist())

    @property
    def copies(self) -> NDArray[np.int64]:
        """The rows that repeat the title and text of an earlier row, ascending: int64."""
        return np.flatnonzero(self.group != np.arange(len(self)))

    def empty_rows(self, corpus_text: CorpusText = "title_text") -> NDArray[np.int64]:
        """Return the rows whose encoded text is empty or white space, ascending: int64."""
        empty = is_blank(self.table["text"])
        if corpus_text == "title_text":
            empty &= is_blank(self.table["title"])
        return np.flatnonzero(empty)

    def _column(self, name: str, rows: IntArray | slice | None) -> list[str]:
        column = self.table[name]
        if rows is None:
            return list(column.to_pylist())
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return list(column.slice(start, max(0, stop - start)).to_pylist())
            rows = np.arange(start, stop, step)
        # row by row, because Arrow's take on a chunked string column copies the column first
        wanted, chunks = np.asarray(rows, dtype=np.int64), column.chunks
        chunk_numbers = np.searchsorted(self._chunk_starts, wanted, side="right") - 1
        positions = (wanted - self._chunk_starts[chunk_numbers]).tolist()
        return [
            chunks[chunk][position].as_py()
            for chunk, position in zip(chunk_numbers.tolist(), positions, strict=True)
        ]

    @cached_property
    def _chunk_starts(self) -> NDArray[np.int64]:
        lengths = [len(chunk) for chunk in self.table["id"].chunks]
        return np.cumsum([0, *lengths[:-1]], dtype=np.int64)


def _save(path: Path, digests: NDArray[np.uint64]) -> None:
    with path.open("wb") as file:  # for a path, NumPy would add a suffix
        np.save(file, digests)


def empty_text_notes(corpus: TextTable, queries: TextTable) -> list[str]:
    """Count the documents and queries without a text, in notes."""
    parts = [
        (corpus, "document", "without title and text", "ranked, but not used as negatives"),
        (queries, "query", "without a text", "not used"),
    ]
    return [
        f"{counted(len(rows), noun)} {problem}, such as {shown(table.ids(rows[:1])[0])}: {use}"
        for table, noun, problem, use in parts
        if len(rows := table.empty_rows())
    ]
