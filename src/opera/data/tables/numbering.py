"""Texts of pairs are numbered: by the rows of a table, or in order of first appearance.

What is kept of a text is its hash, and its id if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.data.texts import TextRow, TextTable, join_title

Rows = NDArray[np.int64]
_DIGEST = pa.binary(16)
_digest = xxhash.xxh3_128_digest


@dataclass
class Texts:
    """Queries, or documents: Arrow arrays of one length.

    Attributes:
        text: null where the text is elsewhere and the id stands for it, or where there is nothing.
        ids: null where a text has none; ``None``: none has.
        titles: ``None``: there are none.
        joined: whether two are one text if title and text joined are equal, not each by itself.
    """

    text: pa.StringArray
    ids: pa.StringArray | None = None
    titles: pa.StringArray | None = None
    joined: bool = False

    def __len__(self) -> int:
        return len(self.text)

    @classmethod
    def concatenated(cls, parts: Sequence[Texts], *, joined: bool) -> Texts:
        """Put texts one behind the other."""

        def column(name: str, nothing: str | None) -> pa.StringArray | None:
            own = [getattr(part, name) for part in parts]
            if all(values is None for values in own):
                return None
            filled = (
                pa.array([nothing] * len(part), pa.string()) if values is None else values
                for part, values in zip(parts, own, strict=True)
            )
            return pa.concat_arrays(list(filled))

        text = column("text", None)
        return cls(
            pa.array([], pa.string()) if text is None else text,
            column("ids", None),
            column("titles", ""),
            joined,
        )

    def take(self, rows: Rows) -> Texts:
        """Return some of them, in this order."""
        texts, ids, titles = (
            None if own is None else own.take(pa.array(rows))
            for own in (self.text, self.ids, self.titles)
        )
        return Texts(texts, ids, titles, self.joined)

    def digests(self) -> pa.Array:
        """Hash title and text of each, but their white space: binary of 16 bytes; null stays."""
        keys = self._keys(_plain)
        return pa.array([None if own is None else _digest(own) for own in keys], _DIGEST)

    def exact_digests(self) -> NDArray[np.uint64]:
        """Hash title and text of each as they are, 0 for null: uint64."""
        keys = self._keys(str)
        hashes = (0 if own is None else xxhash.xxh3_64_intdigest(own) for own in keys)
        return np.fromiter(hashes, dtype=np.uint64, count=len(self))

    def _keys(self, form: Callable[[str], str]) -> Iterator[bytes | None]:
        """What stands for title and text of each."""
        titles = repeat("") if self.titles is None else self.titles.to_pylist()
        for title, text in zip(titles, self.text.to_pylist(), strict=False):
            if text is None:
                yield None
            elif not title.strip() or self.joined:
                yield form(join_title(title, text)).encode()
            else:  # the length says where the title ends; no text alone begins with a line break
                yield f"\n{len(form(title))} {form(title)}{form(text)}".encode()


def _plain(text: str) -> str:
    return " ".join(text.split())


UNKNOWN, NOTHING = -1, -2
"""In place of a row: for an id that has no text, and for an empty cell."""


class KnownTexts:
    """Numbers values by the rows of a table: by its ids, or by its texts if the first are no
    ids.
    """

    def __init__(self, table: TextTable) -> None:
        self.table, self.by_text = table, False
        self._values: list[pa.Array] = []
        self._digests = pa.array([], _DIGEST)

    def add(self, texts: Texts) -> None:
        """Take some values, as texts."""
        if not self._values and len(texts) and (self.table.find_rows(texts.text) < 0).all():
            chunks = [Texts(chunk).digests() for chunk in self.table.table["text"].chunks]
            self._digests = pa.concat_arrays([self._digests, *chunks])
            self.by_text = bool(pc.any(pc.is_in(texts.digests(), self._digests)).as_py())
        if len(texts):
            self._values.append(texts.digests() if self.by_text else texts.text)

    def number(self, keep: BoolArray) -> tuple[Rows, pa.ChunkedArray]:
        """Return the row of each value, and the values; all are kept."""
        values = pa.chunked_array(self._values, _DIGEST if self.by_text else pa.string())
        if not self.by_text:
            return self.table.find_rows(values), values
        return _numbers(pc.index_in(values, self._digests)), values


class NewTexts:
    """Numbers texts in order of first appearance.

    Those with one id are one text; one without an id is the first that is equal to it, or differs
    in white space alone, as ``merged`` of them do.

    Args:
        letter: what made-up ids begin with.
    """

    by_text = False

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._digests: list[pa.Array] = []
        self._exact: list[NDArray[np.uint64]] = []
        self.merged = 0
        self._ids: list[pa.Array] = []
        self._taken = set[str]()
        self.clashing: Rows = np.empty(0, dtype=np.int64)
        self.first: Rows = self.clashing

    def add(self, texts: Texts) -> None:
        """Take some texts."""
        self._digests.append(texts.digests())
        self._exact.append(texts.exact_digests())
        self._ids.append(pa.nulls(len(texts), pa.string()) if texts.ids is None else texts.ids)

    def number(self, keep: BoolArray) -> tuple[Rows, pa.ChunkedArray]:
        """Return the row of each text, and their ids; texts that are new are ``first``."""
        digests = pa.chunked_array(self._digests, _DIGEST)
        ids = pa.chunked_array(self._ids, pa.string())
        written, named = keep & _flags(digests.is_valid()), keep & _flags(ids.is_valid())
        code, _ = codes_of(digests, written)
        alike = written & ~named
        exact = np.unique(np.concatenate([np.empty(0, np.uint64), *self._exact])[alike])
        self.merged = len(exact) - len(np.unique(code[alike]))
        source = np.append(firsts_of(code), UNKNOWN)[code]
        if named.any():
            of_id, known = codes_of(ids, written)
            first = np.append(firsts_of(of_id), UNKNOWN)
            if not written.all():
                of_id = _numbers(pc.index_in(ids, known))
            source = np.where(named, first[of_id], source)
            self._taken = set(known.filter(pc.starts_with(known, self._letter)).to_pylist())
        own = np.arange(len(source))
        found = (written | named) & (source >= 0) & (source <= own)
        self.clashing = np.flatnonzero(found & written & (code[source] != code))
        self.first = np.flatnonzero(found & (source == own))
        rows = np.where(written | named, UNKNOWN, NOTHING)
        return np.where(found, np.searchsorted(self.first, source), rows), ids

    def rows(self, again: Iterator[Texts]) -> Iterator[TextRow]:
        """Yield id, title and text of each row; ``again`` is what was added, once more."""
        start = row = 0
        self._digests, self._ids, self._exact = [], [], []
        for texts in again:
            end = int(np.searchsorted(self.first, start + len(texts)))
            for at in (self.first[row:end] - start).tolist():
                title = "" if texts.titles is None else texts.titles[at].as_py()
                identifier = None if texts.ids is None else texts.ids[at].as_py()
                yield identifier or self._made_up(row), title, texts.text[at].as_py()
                row += 1
            start += len(texts)

    def _made_up(self, row: int) -> str:
        identifier = f"{self._letter}{row}"
        while identifier in self._taken:
            identifier += "-"
        return identifier


def _flags(values: pa.ChunkedArray) -> BoolArray:
    return np.asarray(values.to_numpy(), dtype=bool)


def _numbers(rows: pa.ChunkedArray) -> Rows:
    return np.asarray(pc.fill_null(rows, UNKNOWN).to_numpy(), dtype=np.int64)


def codes_of(values: pa.ChunkedArray, keep: BoolArray | None = None) -> tuple[Rows, pa.Array]:
    """Number the values kept in order of first appearance, -1 for others; and list them."""
    if keep is not None and not keep.all():
        values = pc.if_else(
            pa.chunked_array([pa.array(keep)]), values, pa.scalar(None, values.type)
        )
    chunks = values.dictionary_encode().chunks  # all have one dictionary
    codes = [pc.fill_null(own.indices, -1).to_numpy(zero_copy_only=False) for own in chunks]
    known = chunks[-1].dictionary if chunks else pa.array([], values.type)
    return np.concatenate([np.empty(0, dtype=np.int64), *codes]), known


def firsts_of(codes: Rows) -> Rows:
    """Where each code first stands; they are numbered in order of first appearance."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1) > 0)
