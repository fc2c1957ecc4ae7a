"""Tables of pairs in batches: what stands in each row, lists opened, values checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.names import SPLIT_NAMES
from opera.data.tables.readers import JsonTable, Rows, TableFile
from opera.data.tables.values import Place, as_ids, as_numbers, as_texts, blank, flattened


@dataclass
class PairTable:
    """A table of pairs.

    Attributes:
        file: the table.
        columns: the columns of each role.
        split: the split of all its rows; ``None`` where a column says it.
        given: the roles whose columns the user named.
    """

    file: TableFile
    columns: Mapping[str, Sequence[str]]
    split: str | None = None
    given: frozenset[str] = frozenset()


@dataclass
class Texts:
    """Texts, or ids of texts, that some rows hold.

    Attributes:
        rows: the row of each in the batch: int64 ``[T]``.
        texts: the texts; ids where the texts are in a table of their own.
        ids: the id of each text, where there is such a column.
        titles: likewise.
    """

    rows: NDArray[np.int64]
    texts: pa.StringArray
    ids: pa.StringArray | None = None
    titles: pa.StringArray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def selected(self, keep: BoolArray, number: NDArray[np.int64]) -> Texts:
        """Return some of the texts, with other numbers of their rows."""
        chosen = pa.array(keep)
        ids, titles = (
            None if own is None else own.filter(chosen) for own in (self.ids, self.titles)
        )
        return Texts(number[self.rows[keep]], self.texts.filter(chosen), ids, titles)


@dataclass
class PairBatch:
    """Some rows of pairs.

    Attributes:
        query: the query of each row.
        document: the documents of the rows.
        negative: the negatives of the rows, column by column.
        grade: as the file has it: float64 ``[rows]``, or ``None``.
        weight: likewise.
        split: names of the splits, and which of them each row is in: int8 ``[rows]``.
        place: of a row, for messages.
    """

    query: Texts
    document: Texts
    negative: list[Texts]
    grade: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    split: NDArray[np.int8]
    place: Place


@dataclass
class PairReader:
    """Reads tables of pairs, as often as asked, always in the same order.

    Attributes:
        tables: what to read.
        lenient: leave out empty texts, as of published data, that nobody here can correct; else they are errors.
        splits: names of the splits found so far, by number.
        left_out: empty texts left out of what was read last.
        lists: column and role of the lists found so far where a row has one number, of columns that nobody named.
    """

    tables: Sequence[PairTable]
    lenient: bool = False
    splits: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    lists: dict[tuple[str, str], None] = field(default_factory=dict)

    def __iter__(self) -> Iterator[PairBatch]:
        self.left_out = 0
        for table in self.tables:
            wanted = list(
                dict.fromkeys(column for columns in table.columns.values() for column in columns)
            )
            for rows in table.file.batches(wanted):
                batch = self._batch(table, rows)
                yield self._without_empty(batch) if self.lenient else batch

    def _batch(self, table: PairTable, rows: Rows) -> PairBatch:
        def place(at: int) -> str:
            return table.file.place(rows.numbers[at])

        def texts(role: str) -> pa.StringArray | None:
            read = as_texts if role == "title" else as_ids
            return (
                read(rows.columns[column], column, place)
                if (column := self._column(table, role))
                else None
            )

        query, document = (self._texts(table, rows, role, place) for role in ("query", "document"))
        without = np.bincount(document.rows, minlength=len(query)) == 0
        if without.any() and not self.lenient:
            column = self._column(table, "document") or self._column(table, "document_id")
            raise _empty(place(int(np.argmax(without))), column)
        query.ids = texts("query_id")
        ids, titles = texts("document_id"), texts("title")
        if ids is not None or titles is not None:
            taken = pa.array(document.rows)
            document.ids = None if ids is None else ids.take(taken)
            document.titles = None if titles is None else titles.take(taken)
        return PairBatch(
            query=query,
            document=document,
            negative=[
                self._opened(rows.columns[column], column, place, optional=True)
                for column in table.columns.get("negative", ())
            ],
            grade=self._numbers(table, rows, "grade", place),
            weight=self._numbers(table, rows, "weight", place),
            split=self._splits(table, rows, place),
            place=place,
        )

    def _numbers(
        self, table: PairTable, rows: Rows, role: str, place: Place
    ) -> NDArray[np.float64] | None:
        column = self._column(table, role)
        if column is None:
            return None
        values = rows.columns[column]
        if flattened(values)[0] is not values and role not in table.given:
            if isinstance(table.file, JsonTable):
                table.file.check_lists(column)
            self.lists[column, role] = None
            return None
        return as_numbers(values, column, place)

    def _column(self, table: PairTable, role: str) -> str | None:
        return next(iter(table.columns.get(role, ())), None)

    def _texts(self, table: PairTable, rows: Rows, role: str, place: Place) -> Texts:
        """The texts of a role, or the ids where only these are there; none may be empty."""
        column = self._column(table, role) or self._column(table, f"{role}_id")
        assert column is not None, "a table of pairs has both"
        return self._opened(rows.columns[column], column, place, whole=role == "query")

    def _opened(
        self,
        values: pa.Array,
        column: str,
        place: Place,
        whole: bool = False,
        optional: bool = False,
    ) -> Texts:
        opened, of_row = flattened(values)
        if optional and opened is values and values.null_count:
            opened, of_row = values.drop_null(), np.flatnonzero(np.asarray(values.is_valid()))
        if whole and opened is not values:
            raise DataError(
                f"{place(0)}: column {shown(column)} must hold one text per row, but holds {values.type}"
            )

        def place_of(at: int) -> str:
            return place(int(of_row[at]))

        texts = as_texts(opened, column, place_of)
        empty = np.zeros(0, dtype=bool) if self.lenient else blank(texts)
        if empty.any():
            at = int(np.argmax(empty))
            raise _empty(place_of(at), column)
        return Texts(of_row, texts)

    def _without_empty(self, batch: PairBatch) -> PairBatch:
        """Leave out empty texts, and rows without a query or a document."""
        filled = [~blank(texts.texts) for texts in (batch.document, *batch.negative)]
        n_rows, no_query = len(batch.query), blank(batch.query.texts)
        has_document = np.bincount(batch.document.rows[filled[0]], minlength=n_rows) > 0
        kept = has_document & ~no_query
        self.left_out += sum(int((~own).sum()) for own in filled) + int(
            (no_query & has_document).sum()
        )
        if kept.all() and all(own.all() for own in filled):
            return batch
        number = np.cumsum(kept) - 1
        document, *negative = (
            texts.selected(own & kept[texts.rows], number)
            for texts, own in zip((batch.document, *batch.negative), filled, strict=True)
        )
        places = np.flatnonzero(kept)
        return PairBatch(
            query=batch.query.selected(kept, number),
            document=document,
            negative=negative,
            grade=None if batch.grade is None else batch.grade[kept],
            weight=None if batch.weight is None else batch.weight[kept],
            split=batch.split[kept],
            place=lambda at: batch.place(int(places[at])),
        )

    def _splits(self, table: PairTable, rows: Rows, place: Place) -> NDArray[np.int8]:
        column = self._column(table, "split")
        n_rows = len(rows.numbers)
        if table.split is not None or column is None:
            return np.full(n_rows, self._number(table.split or "train"), dtype=np.int8)
        encoded = as_texts(rows.columns[column], column, place).dictionary_encode()
        numbers: list[int] = []
        for name in encoded.dictionary.to_pylist():
            split = SPLIT_NAMES.get(name.strip().lower())
            if split is None:
                at = int(np.argmax(np.asarray(encoded.indices) == len(numbers)))
                raise DataError(
                    f"{place(at)}: column {shown(column)} must be train, dev or test, got {shown(name)}"
                )
            numbers.append(self._number(split))
        named: NDArray[np.int8] = np.asarray(numbers, dtype=np.int8)
        return np.take(named, np.asarray(encoded.indices))

    def _number(self, split: str) -> int:
        return self.splits.setdefault(split, len(self.splits))


def _empty(place: str, column: str | None) -> DataError:
    return DataError(
        f"{place}: column {shown(column)} must not be empty; fill it or remove the row"
    )
