"""Store pairs: number their queries and documents, write the texts that only they hold, and build the qrels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.checks import MAX_GRADE
from opera.data.store import DataBuilder
from opera.data.tables.judgements import Pairs, given_negatives
from opera.data.tables.pairs import PairBatch, PairReader, Texts
from opera.data.tables.sides import KnownTexts, NewTexts
from opera.data.texts import TextTable

Group = Callable[[PairBatch], Sequence[Texts]]
"""The texts of one side in a batch."""


def queries_of(batch: PairBatch) -> Sequence[Texts]:
    """The queries of a batch."""
    return (batch.query,)


def documents_of(batch: PairBatch) -> Sequence[Texts]:
    """The documents of a batch, positives first."""
    return (batch.document, *batch.negative)


def store_pairs(builder: DataBuilder, reader: PairReader) -> None:
    """Store pairs, and the texts that only they hold.

    Args:
        builder: holds the documents and queries that have tables of their own.
        reader: the pairs.

    Raises:
        DataError: naming file, line or row, rule and value.
    """
    tables = builder.tables
    sides = {
        "queries": (
            KnownTexts(tables["queries"]) if "queries" in tables else NewTexts("q"),
            queries_of,
        ),
        "corpus": (
            KnownTexts(tables["corpus"]) if "corpus" in tables else NewTexts("d"),
            documents_of,
        ),
    }
    collected = _Collected()
    for batch in reader:
        for side, group in sides.values():
            for texts in group(batch):
                side.add(texts)
        collected.add(batch)
    if collected.n_pairs == 0:
        raise DataError(
            f"{reader.tables[0].file.name}: has no pairs{' with a text on both sides' * reader.lenient}"
        )
    for column, role in reader.lists:
        builder.notes.append(f"lists in {shown(column)} are not used: a row has one {role}")
    if reader.left_out:
        builder.notes.append(f"left out {reader.left_out:,} empty texts and the pairs they are in")
    for stored, (side, group) in sides.items():
        if isinstance(side, KnownTexts):
            _check_known(builder, reader, stored, side, group)
        else:
            _check_new(reader, side, group)
            builder.write_texts(
                stored, side.write(texts for batch in reader for texts in group(batch))
            )
    pairs, negatives = collected.numbered(sides["queries"][0].rows(), sides["corpus"][0].rows())
    sides.clear()
    _check(builder, reader, pairs)
    pairs = pairs.sorted()
    for split, number in reader.splits.items():
        builder.splits[split] = pairs.qrels(number, builder.notes, split)
    of_train = negatives.split == reader.splits.get("train", -1)
    if of_train.any():
        builder.given_negatives = given_negatives(
            negatives.query[of_train],
            negatives.doc[of_train],
            builder.splits["train"],
            len(tables["queries"]),
        )


class _Collected:
    """What is kept of each batch: which query and document each pair and each negative has, and its numbers."""

    def __init__(self) -> None:
        self._rows = self._texts = self.n_pairs = 0
        self._queries: tuple[list[NDArray[np.int32]], ...] = ([], [])  # of pairs, of negatives
        self._docs: tuple[list[NDArray[np.int32]], ...] = ([], [])
        self._split: tuple[list[NDArray[np.int8]], ...] = ([], [])
        self._numbers: dict[str, list[NDArray[np.float32] | None]] = {"grade": [], "weight": []}
        self._counts: list[int] = []

    def add(self, batch: PairBatch) -> None:
        """Take a batch."""
        for texts in documents_of(batch):
            kind = int(texts is not batch.document)
            self._queries[kind].append((texts.rows + self._rows).astype(np.int32))
            self._docs[kind].append(
                np.arange(self._texts, self._texts + len(texts), dtype=np.int32)
            )
            self._split[kind].append(batch.split[texts.rows])
            self._texts += len(texts)
        own = batch.document.rows
        for name, values in self._numbers.items():
            given = getattr(batch, name)
            values.append(None if given is None else given[own].astype(np.float32))
        self._counts.append(len(own))
        self._rows += len(batch.query)
        self.n_pairs += len(own)

    def numbered(
        self, query_rows: NDArray[np.int32], doc_rows: NDArray[np.int32]
    ) -> tuple[Pairs, Pairs]:
        """Return the pairs, and likewise the negatives; what was collected is given up.

        Args:
            query_rows: row of each query that was read: int32.
            doc_rows: row of each document that was read, likewise.
        """
        numbers = [self._number(values) for values in self._numbers.values()]
        parts = [
            (query_rows[_joined(queries)], doc_rows[_joined(docs)], _joined(splits))
            for queries, docs, splits in zip(self._queries, self._docs, self._split, strict=True)
        ]
        return Pairs(*parts[0], *numbers), Pairs(*parts[1], None, None)

    def _number(self, values: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
        """One number per pair, NaN where a file has none; ``None`` where no file has one."""
        if all(own is None for own in values):
            return None
        none = (np.full(count, np.nan, dtype=np.float32) for count in self._counts)
        return np.concatenate(
            [no if own is None else own for own, no in zip(values, none, strict=True)]
        )


Number = TypeVar("Number", np.int32, np.int8)


def _joined(parts: list[NDArray[Number]]) -> NDArray[Number]:
    """Join arrays, and empty their list, so that both are in memory for no longer than that takes."""
    joined: NDArray[Number] = np.concatenate(parts) if parts else np.empty(0, dtype=np.int8)
    parts.clear()
    return joined


def _check_known(
    builder: DataBuilder, reader: PairReader, stored: str, side: KnownTexts, group: Group
) -> None:
    """Refuse ids that are not in the table."""
    rows, what = side.rows(), {"queries": "query", "corpus": "document"}[stored]
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        found = [_find(reader, group, int(number)) for number in unknown[:3]]
        values = [texts.texts[at].as_py() for _, texts, at in found]
        kind = "text" if side.by_text else "id"
        problem = (
            f"{found[0][0]}: {what} {shown(values[0])} is no {kind} in the table of {_plural(what)}"
        )
        if len(unknown) > 1:
            listed = ", ".join(map(shown, dict.fromkeys(values)))
            problem += f" ({len(unknown):,} of {len(rows):,} are none, such as {listed})"
        raise DataError(f"{problem}; {_advice(builder.tables[stored], values[0])}")
    if side.by_text:
        builder.notes.append(f"the pairs hold the texts of {_plural(what)}, not their ids")


def _advice(table: TextTable, value: str) -> str:
    """What to do about a value that is no id of a table; pandas writes ids beside missing ones as 1.0."""
    other = value.removesuffix(".0") if value.endswith(".0") else f"{value}.0"
    if int(table.find_rows([other])[0]) >= 0:
        return f"{shown(other)} is one: pandas writes numbers so, beside missing ones; convert with astype('Int64')"
    return "add it there, or remove such pairs"


def _plural(what: str) -> str:
    return {"query": "queries"}.get(what, f"{what}s")


def _check_new(reader: PairReader, side: NewTexts, group: Group) -> None:
    """Refuse an id that stands beside two texts, or that no id may be."""
    if (clash := side.clash()) is not None:
        place, texts, at = _find(reader, group, clash)
        assert texts.ids is not None
        raise DataError(
            f"{place}: the id {shown(texts.ids[at].as_py())} stood beside another text before"
        )


def _check(builder: DataBuilder, reader: PairReader, pairs: Pairs) -> None:
    """Refuse wrong numbers and relevant pairs of empty texts; grades of any size where a split has fractions."""
    grade, weight = pairs.grade, pairs.weight
    if weight is not None and (weight < 0).any():
        at = int(np.argmax(weight < 0))
        _refuse(reader, at, f"weight must be 0 or more, got {weight[at]:g}")
    large = (
        np.flatnonzero(np.abs(grade) > MAX_GRADE)
        if grade is not None
        else np.empty(0, dtype=np.int64)
    )
    for split in np.unique(pairs.split[large]).tolist():
        if grade is not None and not pairs.fractional(split):
            at = int(large[pairs.split[large] == split][0])
            rule = f"grade must lie between -{MAX_GRADE} and {MAX_GRADE}, got {grade[at]:g}"
            _refuse(
                reader, at, f"{rule}; counts, as of clicks, are weights: --columns weight=COLUMN"
            )
    empty = np.isin(pairs.query, builder.tables["queries"].empty_rows())
    empty |= np.isin(pairs.doc, builder.tables["corpus"].empty_rows())
    empty &= pairs.relevant
    if empty.any():
        problem = (
            "a relevant pair whose query or document has no text; give it one or remove the pair"
        )
        _refuse(reader, int(np.argmax(empty)), problem)


def _refuse(reader: PairReader, number: int, problem: str) -> NoReturn:
    place, _, _ = _find(reader, lambda batch: (batch.document,), number)
    raise DataError(f"{place}: {problem}")


def _find(reader: PairReader, group: Group, number: int) -> tuple[str, Texts, int]:
    """Find a text by its number: its place, the texts that it is among, and its number there."""
    for batch in reader:
        for texts in group(batch):
            if number < len(texts):
                return batch.place(int(texts.rows[number])), texts, number
            number -= len(texts)
    raise DataError(
        f"{reader.tables[0].file.name}: changed while it was read; run the command again"
    )
