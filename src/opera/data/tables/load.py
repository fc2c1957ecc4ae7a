"""Load tables: their columns become documents, queries and pairs, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.names import SPLIT_NAMES
from opera.data.store import DataBuilder
from opera.data.tables.columns import Columns, TableKind, note_of, unknown_columns
from opera.data.tables.numbering import Texts, codes_of, firsts_of
from opera.data.tables.pairs import PairBatch, PairStore
from opera.data.tables.problems import At, Place, Places, Problems
from opera.data.tables.rows import TREC_COLUMNS, DelimitedTable, JsonTable, TableFile
from opera.data.tables.values import EMPTY, Column, is_list
from opera.data.texts import TextRow, TextTable, blank

RULES = "6"  # part of every key: change it when what is read from tables changes

PASSAGE = pa.struct([(name, pa.string()) for name in ("docid", "title", "text")])
"""A document of Tevatron's; without a text, other files hold it."""

Chosen = Mapping[str, Sequence[str]]
"""The columns of each role."""


@dataclass
class PairTable:
    """A table of pairs.

    Attributes:
        file: holds the rows.
        columns: its columns by role.
        split: of all its rows, where no column says it.
    """

    file: TableFile
    columns: Chosen
    split: str | None = None


def store_tables(
    builder: DataBuilder,
    texts: Mapping[TableKind, Sequence[TableFile]],
    pairs: Sequence[tuple[str | None, TableFile]],
    given: Columns,
    *,
    lenient: bool = False,
    skip_bad_rows: bool = False,
) -> None:
    """Store tables that are open, from files or not.

    Args:
        builder: where to.
        texts: the tables of documents and of queries, where there are any.
        pairs: split and table of the pairs; no split where a column says it, or all are train.
        given: what the user says of columns.
        lenient: leave out empty texts, and ids that are not there, as of published data.
        skip_bad_rows: leave out the rows that break a rule.

    Raises:
        DataError: naming table, row, rule and value.
    """
    text_tables: dict[TableKind, list[tuple[TableFile, Chosen]]] = {
        kind: [(file, _text_columns(file, kind, given)) for file in files]
        for kind, files in texts.items()
    }
    tables = [
        PairTable(file, _pair_columns(file, list(texts), given), split) for split, file in pairs
    ]
    for role in ("query", "document"):  # if only some texts have an id, every text gets one of ours
        negatives = role == "document" and any("negative" in own.columns for own in tables)
        if negatives or not all(f"{role}_id" in own.columns for own in tables):
            for own in tables:
                own.columns = {name: at for name, at in own.columns.items() if name != f"{role}_id"}
    read = [each for files in text_tables.values() for each in files]
    read += [(own.file, own.columns) for own in tables]
    opened = [(kind, own) for kind, files in texts.items() for own in files]
    opened += [("pairs", own) for _, own in pairs]
    given.check_used([(kind, own.name, own.columns) for kind, own in opened])
    builder.notes += _notes(read)
    problems = Problems(None if lenient else skip_bad_rows)
    for kind, files in text_tables.items():
        write_texts(builder, "corpus" if kind == "documents" else kind, files, problems)
    reader = PairReader(tables, builder.notes, lenient=lenient)
    reader.given = frozenset(role for role, _ in given.of("pairs"))
    reader.store(builder, tables[0].file.name, problems)


def _notes(read: Sequence[tuple[TableFile, Chosen]]) -> list[str]:
    """Say how columns were read, once for all files of which the same is true."""
    alike: dict[str, list[str]] = {}
    for file, columns in read:
        if file.columns != TREC_COLUMNS and (note := note_of(file.columns, columns)):
            alike.setdefault(note, []).append(file.short)
    return [
        f"{names[0]}{f' and {len(names) - 1:,} more' if len(names) > 1 else ''}: {note}"
        for note, names in alike.items()
    ]


def _text_columns(file: TableFile, kind: TableKind, given: Columns) -> dict[str, list[str]]:
    chosen = given.choose(file.columns, kind, file.name)
    _check_there(file, ("id", "text"), chosen, kind, given)
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
    _check_there(file, kinds, chosen, "pairs", given)
    if "documents" in known:
        chosen.pop("title", None)
    return chosen


def _check_there(
    file: TableFile,
    roles: Iterable[str],
    chosen: Mapping[str, list[str]],
    kind: TableKind,
    given: Columns,
) -> None:
    if missing := [role for role in roles if role not in chosen]:
        lines = isinstance(file, DelimitedTable)
        names = file.first_line if isinstance(file, DelimitedTable) else file.columns
        raise unknown_columns(file.name, names, missing, chosen, kind, lines, given)


def write_texts(
    builder: DataBuilder,
    kind: str,
    tables: Sequence[tuple[TableFile, Chosen]],
    problems: Problems | None = None,
) -> None:
    """Write tables of texts, with the roles ``id``, ``text`` and perhaps ``title``, as ``kind``.

    Raises:
        DataError: if there is none, or for rows that break a rule, unless ``problems`` get them.
    """

    def texts(found: Problems, places: Places) -> Iterator[TextRow]:
        for file, chosen in tables:
            for part in parts_of(file, chosen, found):
                titles = [own.texts().to_pylist() for own in part["title"]] or [[""] * part.n_rows]
                (identifier,), (text,) = part["id"], part["text"]
                ids, own_texts = identifier.ids().to_pylist(), text.texts().to_pylist()
                fine = ~found.breaks(file, part.numbers)
                places.add(int(fine.sum()), partial(_at, file, np.asarray(part.numbers)[fine]))
                yield from compress(zip(ids, titles[0], own_texts, strict=True), fine)

    found, places = Problems() if problems is None else problems, Places()
    table = builder.write_texts(kind, texts(found, places))
    repeated = refuse_repeated(table, places, found)
    if problems is None:
        found.check()
    if repeated.any():
        builder.write_texts(kind, compress(texts(Problems(), Places()), ~repeated))
    if len(builder.tables[kind]) == 0:
        empty = DataError(f"{tables[0][0].name}: is empty; it must have at least one row")
        raise found.error() if found.found else empty


def refuse_repeated(table: TextTable, places: Place, problems: Problems) -> BoolArray:
    """Refuse the rows whose id another row has before them; return which they are."""
    ids = table.table["id"]
    if pc.count_distinct(ids).as_py() == len(table):
        return np.zeros(len(table), dtype=bool)
    codes, _ = codes_of(ids)
    first = firsts_of(codes)[codes]
    repeated = first < np.arange(len(table))
    rows = np.flatnonzero(repeated)
    problems.add(
        rows,
        places,
        "duplicate id {}; ids must be unique",
        lambda: f"{shown(ids[rows[0]].as_py())}, first seen at {places(int(first[rows[0]]))}",
    )
    return repeated


@dataclass
class Part:
    """Some rows of a table: their lines or numbers, and their columns by role."""

    numbers: IntArray | range
    columns: Mapping[str, list[Column]]
    place: Place

    @property
    def n_rows(self) -> int:
        """How many rows these are."""
        return len(self.numbers)

    def __getitem__(self, role: str) -> list[Column]:
        return self.columns.get(role, [])


def parts_of(file: TableFile, chosen: Chosen, problems: Problems) -> Iterator[Part]:
    """Read a table."""
    names = list(dict.fromkeys(name for own in chosen.values() for name in own))
    for rows in file.batches(names, problems):
        place = partial(_at, file, rows.numbers)
        problems.count(file, len(rows.numbers))
        columns = {
            role: [Column(rows.columns[name], name, place, problems) for name in names]
            for role, names in chosen.items()
        }
        yield Part(rows.numbers, columns, place)


def _at(file: TableFile, numbers: IntArray | range, row: int) -> At:
    return At(file, int(numbers[row]))


@dataclass
class PairReader:
    """Reads tables of pairs, and of texts beside them.

    Attributes:
        tables: what to read.
        notes: gets what was read as what, and what was left out.
        lenient: whether texts may be empty.
        lines: whether these are lines of BEIR or of another trainer; see :class:`PairStore`.
        given: the roles whose columns the user named.
        splits: numbers of the splits found so far.
        prompts: the prompts found.
    """

    tables: Sequence[PairTable]
    notes: list[str]
    lenient: bool = False
    lines: bool = False
    given: frozenset[str] = frozenset()
    splits: dict[str, int] = field(default_factory=dict)
    prompts: dict[str, None] = field(default_factory=dict)

    def store(self, builder: DataBuilder, name: str, problems: Problems | None = None) -> None:
        """Store the pairs under the name of what is read; as :meth:`PairStore.store`."""
        PairStore(
            builder,
            name,
            self.batches,
            self.splits,
            lines=self.lines,
            lenient=self.lenient,
            problems=problems,
        ).store()

    def batches(self, problems: Problems) -> Iterator[PairBatch]:
        """Yield the pairs; ``problems`` get the rows that break a rule."""
        for table in self.tables:
            for part in parts_of(table.file, table.columns, problems):
                batch = self._batch(table, part)
                batch.broken = problems.breaks(table.file, part.numbers)
                yield batch

    def _batch(self, table: PairTable, part: Part) -> PairBatch:
        both = {"query", "document"} <= table.columns.keys()  # not texts or judgements alone
        filled, optional = both and not self.lenient, both and self.lines
        query_ids, document_ids = (
            next((own.ids(optional=optional) for own in part[role]), None)
            for role in ("query_id", "document_id")
        )
        query = pa.nulls(part.n_rows, pa.string())
        for own in part["query"]:
            query = own.texts()
            if filled:
                own.refuse(blank(query), EMPTY)
        found = [self._documents(own, False, filled, part["score"]) for own in part["document"]]
        if not found and document_ids is not None:  # other files hold the texts
            found = [(Texts(pa.nulls(part.n_rows, pa.string())), np.arange(part.n_rows), None)]
        for texts, row, _ in found:
            if document_ids is not None:
                texts.ids = document_ids.take(pa.array(row))
            for own in part["title"]:
                texts.titles = own.texts().take(pa.array(row))
        n_positive = sum(len(row) for _, row, _ in found)
        found += [
            self._documents(own, True, filled, part["negative_score"]) for own in part["negative"]
        ]
        row = np.concatenate([np.empty(0, dtype=np.int64), *(own for _, own, _ in found)])
        # of lines, the negatives of one come before the documents of the next
        order = np.argsort(row, kind="stable") if self.lines else np.arange(len(row))
        scores = [np.full(len(own), np.nan) if score is None else score for _, own, score in found]
        document = Texts.concatenated([own for own, _, _ in found], joined=self.lines)
        for own in part["prompt"]:
            self.prompts |= dict.fromkeys(pc.unique(own.texts()).to_pylist())
        return PairBatch(
            query=Texts(query, query_ids),
            document=document.take(order) if self.lines else document,
            row=row[order],
            negative=order >= n_positive,
            split=self._splits(table.split, part),
            place=part.place,
            grade=self._numbers(table, part, "grade"),
            weight=self._numbers(table, part, "weight"),
            score=np.concatenate([np.empty(0), *scores])[order],
        )

    def _documents(
        self, own: Column, negative: bool, filled: bool, scores: Sequence[Column]
    ) -> tuple[Texts, NDArray[np.int64], NDArray[np.float64] | None]:
        """The documents of a column, lists opened, the row of each, and a teacher's scores."""
        opened, score = own.opened(), None
        for column in scores:
            score = column.aligned(own)
        if opened is not own and filled and not negative:
            own.refuse(own.lengths() == 0, EMPTY)
        empty = np.asarray(opened.values.is_null())
        if opened.values.type == PASSAGE:
            identifier, title, text = (opened.part(name) for name in ("docid", "title", "text"))
            texts = Texts(text.values, identifier.ids(optional=True), title.texts())
            nothing = blank(text.texts()) & blank(texts.titles)
            missing = np.asarray(text.values.is_null())
            empty = np.where(missing, identifier.values.is_null(), nothing & (not negative))
        else:
            texts = Texts(opened.texts())
            empty = blank(texts.text)
        if negative:  # an empty negative is missing
            there = np.flatnonzero(~empty)
            score = None if score is None else score[there]
            return texts.take(there), opened.rows[there], score
        if filled:
            opened.refuse(empty, EMPTY)
        return texts, opened.rows, score

    def _numbers(self, table: PairTable, part: Part, role: str) -> NDArray[np.float64] | None:
        for own in part[role][:1]:
            if role in self.given or not is_list(own.values.type):
                return own.numbers()
            if isinstance(table.file, JsonTable):
                table.file.check_lists(own.name)
            note = f"lists in {shown(own.name)} are not used: a row has one {role}"
            self.notes += [note] if note not in self.notes else []
        return None

    def _splits(self, split: str | None, part: Part) -> NDArray[np.int8]:
        if split is not None or not part["split"]:
            return np.full(part.n_rows, self._number(split or "train"), dtype=np.int8)
        (own,) = part["split"]
        encoded = own.texts().dictionary_encode()
        codes, names = np.asarray(encoded.indices), encoded.dictionary.to_pylist()
        splits = [SPLIT_NAMES.get(name.strip().lower()) for name in names]
        unknown = np.array([split is None for split in splits], dtype=bool)[codes]
        rule = "must be train, dev or test, got {}"
        own.refuse(unknown, rule, lambda at: shown(names[codes[at]]))
        numbers = [self._number(split or "train") for split in splits]
        return np.asarray(np.array(numbers, dtype=np.int8)[codes])

    def _number(self, split: str) -> int:
        return self.splits.setdefault(split, len(self.splits))
