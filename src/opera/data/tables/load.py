"""Load tables: their columns become documents, queries and pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.names import SPLIT_NAMES
from opera.data.store import DataBuilder
from opera.data.tables.columns import Columns, TableKind, note_of, unknown_columns
from opera.data.tables.numbering import Texts
from opera.data.tables.pairs import PairBatch, PairStore
from opera.data.tables.rows import TREC_COLUMNS, DelimitedTable, JsonTable, Rows, TableFile
from opera.data.tables.values import Place, as_ids, as_numbers, as_texts, flattened
from opera.data.texts import TextRow, blank

RULES = "4"  # part of every key: change it when what is read from tables changes

Chosen = Mapping[str, Sequence[str]]
"""The columns of each role."""


@dataclass
class _PairTable:
    """A table of pairs, its columns, and the split of all its rows, where no column says it."""

    file: TableFile
    columns: Chosen
    split: str | None


def store_tables(
    builder: DataBuilder,
    texts: Mapping[TableKind, Sequence[TableFile]],
    pairs: Sequence[tuple[str | None, TableFile]],
    given: Columns,
    lenient: bool = False,
) -> None:
    """Store tables that are open, from files or not.

    Args:
        builder: where to.
        texts: the tables of documents and of queries, where there are any.
        pairs: split and table of the pairs; no split where a column says it, or all are train.
        given: what the user says of columns.
        lenient: leave out empty texts, and ids that are not there, as of published data.

    Raises:
        DataError: naming table, row, rule and value.
    """
    text_tables: dict[TableKind, list[tuple[TableFile, Chosen]]] = {
        kind: [(file, _text_columns(file, kind, given)) for file in files]
        for kind, files in texts.items()
    }
    tables = [
        _PairTable(file, _pair_columns(file, list(texts), given), split) for split, file in pairs
    ]
    for role in ("query", "document"):  # if only some texts have an id, every text gets one of ours
        negatives = role == "document" and any("negative" in own.columns for own in tables)
        if negatives or not all(f"{role}_id" in own.columns for own in tables):
            for own in tables:
                own.columns = {name: at for name, at in own.columns.items() if name != f"{role}_id"}
    read = [each for files in text_tables.values() for each in files]
    read += [(own.file, own.columns) for own in tables]
    given.check_used({file.name: file.columns for file, _ in read})
    builder.notes += _notes(read)
    for kind, files in text_tables.items():
        write_unique(
            builder, "corpus" if kind == "documents" else kind, files[0][0].name, _rows_of(files)
        )
    named = frozenset(role for role, _, _ in given.of("pairs"))
    reader = _PairReader(tables, named, builder.notes, lenient)
    name = tables[0].file.name
    PairStore(builder, name, reader.batches, reader.splits, lenient=lenient).store()


def _notes(read: Sequence[tuple[TableFile, Chosen]]) -> list[str]:
    """Say how columns were read, once for all files of which the same is true."""
    alike: dict[str, list[str]] = {}
    for file, columns in read:
        if file.columns is not TREC_COLUMNS and (note := note_of(file.columns, columns)):
            alike.setdefault(note, []).append(file.short)
    return [
        f"{names[0]}{f' and {len(names) - 1:,} more' if len(names) > 1 else ''}: {note}"
        for note, names in alike.items()
    ]


def _text_columns(file: TableFile, kind: TableKind, given: Columns) -> dict[str, list[str]]:
    chosen = given.choose(file.columns, kind, file.name)
    _check_there(file, ("id", "text"), chosen, kind)
    return chosen


def _pair_columns(
    file: TableFile, known: Sequence[TableKind], given: Columns
) -> dict[str, list[str]]:
    """The columns of a table of pairs; where a table of texts is there, the pairs hold its ids."""
    chosen = given.choose(file.columns, "pairs", file.name)
    kinds: dict[str, TableKind] = {"query": "queries", "document": "documents"}
    for role, kind in kinds.items():
        if kind in known and f"{role}_id" in chosen:
            chosen[role] = chosen.pop(f"{role}_id")
        elif kind not in known and role not in chosen and f"{role}_id" in chosen:
            raise DataError(
                f"{file.name}: holds ids of {kind} ({shown(chosen[f'{role}_id'][0])}) and not "
                f"their texts; give these with --{kind} FILE"
            )
    _check_there(file, kinds, chosen, "pairs")
    if "documents" in known:
        chosen.pop("title", None)
    return chosen


def _check_there(
    file: TableFile, roles: Iterable[str], chosen: Mapping[str, list[str]], kind: TableKind
) -> None:
    if missing := [role for role in roles if role not in chosen]:
        lines = isinstance(file, DelimitedTable)
        names = file.first_line if isinstance(file, DelimitedTable) else file.columns
        raise unknown_columns(file.name, names, missing, chosen, kind, lines)


_Cells = tuple[pa.Array, str, Place]
"""A column of some rows, its name, and what names its rows."""
Placed = tuple[Callable[[], str], TextRow]
"""A text, and what names its place."""


def _rows_of(tables: Sequence[tuple[TableFile, Chosen]]) -> Callable[[], Iterator[Placed]]:
    """Return what yields each text of the tables, as often as it is called."""

    def texts() -> Iterator[Placed]:
        for file, chosen in tables:
            named = {role: own[0] for role, own in chosen.items()}
            for rows in file.batches(list(dict.fromkeys(named.values()))):
                place = _places(file, rows)
                values = {
                    role: (as_ids if role == "id" else as_texts)(rows.columns[own], own, place)
                    for role, own in named.items()
                }
                titles = (
                    values["title"].to_pylist() if "title" in values else [""] * len(rows.numbers)
                )
                ids, own_texts = values["id"].to_pylist(), values["text"].to_pylist()
                for at, row in enumerate(zip(ids, titles, own_texts, strict=True)):
                    yield lambda at=at, place=place: place(at), row  # type: ignore[misc]

    return texts


def write_unique(
    builder: DataBuilder, kind: str, name: str, texts: Callable[[], Iterator[Placed]]
) -> None:
    """Write ``corpus`` or ``queries``, whose ids are unique.

    Args:
        builder: where to.
        kind: which of them.
        name: of the file, for messages.
        texts: yields them, as often as it is called.

    Raises:
        DataError: if there is none, or naming both places of an id that occurs twice.
    """
    table = builder.write_texts(kind, (row for _, row in texts()))
    if len(table) == 0:
        raise DataError(f"{name}: is empty; it must have at least one row")
    if pc.count_distinct(table.table["id"]).as_py() < len(table):
        twice = Counter(table.ids()).most_common(1)[0][0]
        places = [place() for place, (identifier, _, _) in texts() if identifier == twice]
        raise DataError(
            f"{places[1]}: duplicate id {shown(twice)}, first seen at {places[0]}; ids must "
            "be unique"
        )


def _places(file: TableFile, rows: Rows) -> Place:
    return lambda at: file.place(rows.numbers[at])


@dataclass
class _PairReader:
    """Reads tables of pairs.

    Attributes:
        tables: what to read.
        given: the roles whose columns the user named.
        notes: gets the columns that are not used.
        lenient: whether texts may be empty.
        splits: numbers of the splits found so far.
    """

    tables: Sequence[_PairTable]
    given: frozenset[str]
    notes: list[str]
    lenient: bool
    splits: dict[str, int] = field(default_factory=dict)

    def batches(self) -> Iterator[PairBatch]:
        """Yield the pairs."""
        for table in self.tables:
            wanted = dict.fromkeys(column for own in table.columns.values() for column in own)
            for rows in table.file.batches(list(wanted)):
                yield self._batch(table, rows, _places(table.file, rows))

    def _batch(self, table: _PairTable, rows: Rows, place: Place) -> PairBatch:
        def cells(role: str) -> list[_Cells]:
            return [(rows.columns[name], name, place) for name in table.columns.get(role, ())]

        n_rows, no_texts = len(rows.numbers), pa.array([], pa.string())
        query, _ = self._opened(*cells("query")[0], one=True)
        parts = [self._opened(*cells("document")[0])]
        text, row = parts[0]
        if not self.lenient:
            _refuse_empty(cells("document")[0], np.bincount(row, minlength=n_rows) == 0)
        parts += [self._opened(*own, optional=True) for own in cells("negative")]
        negative = np.arange(sum(len(own) for own, _ in parts)) >= len(text)
        titles = [as_texts(*own).take(pa.array(row)) for own in cells("title")]
        if titles:  # negatives have none
            titles.append(pa.array([""] * int(negative.sum()), pa.string()))
        document = Texts(
            pa.concat_arrays([no_texts, *(own for own, _ in parts)]),
            next((as_ids(*own).take(pa.array(row)) for own in cells("document_id")), None),
            pa.concat_arrays(titles) if titles else None,
        )
        return PairBatch(
            query=Texts(query, next((as_ids(*own) for own in cells("query_id")), None)),
            document=document,
            row=np.concatenate([of for _, of in parts]),
            negative=negative,
            split=self._splits(table.split, cells("split"), n_rows),
            place=place,
            grade=self._numbers(table, cells("grade"), "grade"),
            weight=self._numbers(table, cells("weight"), "weight"),
        )

    def _opened(
        self, values: pa.Array, name: str, place: Place, one: bool = False, optional: bool = False
    ) -> tuple[pa.StringArray, NDArray[np.int64]]:
        """Return the texts of a column, lists opened, and the row of each; none may be empty."""
        opened, of_row = flattened(values)
        if optional and opened is values and values.null_count:
            opened, of_row = values.drop_null(), np.flatnonzero(np.asarray(values.is_valid()))
        if one and opened is not values:
            raise DataError(
                f"{place(0)}: column {shown(name)} must hold one text per row, "
                f"but holds {values.type}"
            )
        own: _Cells = (opened, name, lambda at: place(int(of_row[at])))
        texts = as_texts(*own)
        if not self.lenient:
            _refuse_empty(own, blank(texts))
        return texts, of_row

    def _numbers(
        self, table: _PairTable, cells: list[_Cells], role: str
    ) -> NDArray[np.float64] | None:
        for values, name, place in cells[:1]:
            if role in self.given or flattened(values)[0] is values:
                return as_numbers(values, name, place)
            if isinstance(table.file, JsonTable):
                table.file.check_lists(name)
            note = f"lists in {shown(name)} are not used: a row has one {role}"
            self.notes += [note] if note not in self.notes else []
        return None

    def _splits(self, split: str | None, cells: list[_Cells], n_rows: int) -> NDArray[np.int8]:
        if split is not None or not cells:
            return np.full(n_rows, self._number(split or "train"), dtype=np.int8)
        encoded = as_texts(*cells[0]).dictionary_encode()
        codes, numbers = np.asarray(encoded.indices), []
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            own = SPLIT_NAMES.get(name.strip().lower())
            if own is None:
                _, column, place = cells[0]
                raise DataError(
                    f"{place(int(np.argmax(codes == code)))}: column {shown(column)} must be "
                    f"train, dev or test, got {shown(name)}"
                )
            numbers.append(self._number(own))
        return np.asarray(np.array(numbers, dtype=np.int8)[codes])

    def _number(self, split: str) -> int:
        return self.splits.setdefault(split, len(self.splits))


def _refuse_empty(cells: _Cells, empty: BoolArray) -> None:
    _, name, place = cells
    if empty.any():
        raise DataError(
            f"{place(int(np.argmax(empty)))}: column {shown(name)} must not be empty; "
            "fill it or remove the row"
        )
