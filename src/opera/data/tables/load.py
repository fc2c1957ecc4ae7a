"""Load tables: documents and queries into Arrow files, pairs into qrels. Texts are streamed, pairs are arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path

import pyarrow.compute as pc

from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.names import source_name
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, digest_files, load_or_parse
from opera.data.tables.columns import Columns, TableKind, choose, note_of, unknown_columns
from opera.data.tables.delimited import DelimitedTable, QrelsTable
from opera.data.tables.files import files_in, named_splits, open_tables, path_below
from opera.data.tables.pairs import PairReader, PairTable
from opera.data.tables.readers import TableFile
from opera.data.tables.source import TableSource
from opera.data.tables.store_pairs import store_pairs
from opera.data.tables.values import as_ids, as_texts
from opera.data.texts import TextRow

RULES = "4"  # part of every key: change it when what is read from tables changes


def load_tables(tables: TableSource, source: str | None = None) -> RetrievalData:
    """Load a data set of tables.

    Args:
        tables: the files and what their columns are.
        source: what the user passed, where that is a single file; else the string form of ``tables``.

    Raises:
        DataError: naming file, line or row, rule and value.
    """
    text = source or str(tables)
    name = Path(source).name if source else source_name(text) or text

    def digest() -> str:
        read = [
            (role, place, file) for role, place in tables.roles for file in files_in(Path(place))
        ]
        places = [(role, path_below(file, Path(place)).as_posix()) for role, place, file in read]
        return digest_files(
            (file for _, _, file in read), f"tables\0{RULES}\0{places}\0{tables.columns}"
        )

    return load_or_parse(digest, name, text, lambda builder: _parse(builder, tables))


def _parse(builder: DataBuilder, tables: TableSource) -> None:
    given = Columns(tables.columns)
    opened: dict[TableKind, list[TableFile]] = {}
    if tables.documents is not None:
        opened["documents"] = open_tables(Path(tables.documents), "documents", given, builder.notes)
    if tables.queries is not None:
        opened["queries"] = open_tables(Path(tables.queries), "queries", given, builder.notes)
    pairs = [
        (split or file.split, file)
        for split, place in named_splits(tables.pairs, builder.notes)
        for file in open_tables(Path(place), "pairs", given, builder.notes)
    ]
    store_tables(builder, opened, pairs, given)


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
        lenient: as of :class:`PairReader`.

    Raises:
        DataError: naming table, row, rule and value.
    """
    chosen = {
        kind: [_text_columns(file, kind, given) for file in files] for kind, files in texts.items()
    }
    tables = [_pair_table(file, split, list(texts), given) for split, file in pairs]
    _drop_partial_ids(tables)
    given.check_used(
        {file.name: file.columns for file in chain(*texts.values(), (file for _, file in pairs))}
    )
    read = [
        (file, own)
        for kind, files in texts.items()
        for file, own in zip(files, chosen[kind], strict=True)
    ]
    builder.notes += _notes([*read, *((table.file, table.columns) for table in tables)])
    for kind, files in texts.items():
        stored = "corpus" if kind == "documents" else kind
        builder.write_texts(stored, _rows_of(files, chosen[kind]))
        _check_unique(builder, stored, files, chosen[kind])
    store_pairs(builder, PairReader(tables, lenient))


def _drop_partial_ids(tables: Sequence[PairTable]) -> None:
    """Leave out ids of texts where only some of the texts have one: then every text gets an id of ours."""
    for role in ("query", "document"):
        negatives = role == "document" and any("negative" in table.columns for table in tables)
        if negatives or not all(f"{role}_id" in table.columns for table in tables):
            for table in tables:
                table.columns = {
                    name: own for name, own in table.columns.items() if name != f"{role}_id"
                }


def _notes(read: Sequence[tuple[TableFile, Mapping[str, Sequence[str]]]]) -> list[str]:
    """Say how columns were read, once for all files of which the same is true."""
    alike: dict[str, list[str]] = {}
    for file, columns in read:
        if not isinstance(file, QrelsTable) and (note := note_of(file.columns, columns)):
            alike.setdefault(note, []).append(file.short)
    notes = []
    for note, names in alike.items():
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        notes.append(f"{names[0]}{more}: {note}")
    return notes


def _unknown(
    file: TableFile, missing: Sequence[str], chosen: Mapping[str, list[str]], kind: TableKind
) -> DataError:
    if not isinstance(file, DelimitedTable):
        return unknown_columns(file.name, file.columns, missing, chosen, kind, False)
    problem = unknown_columns(file.name, file.first_line, missing, chosen, kind, True)
    return DataError(f"{problem}{file.other_delimiter()}")


def _text_columns(file: TableFile, kind: TableKind, given: Columns) -> Mapping[str, list[str]]:
    """The columns of a table of documents or queries."""
    chosen = choose(file.columns, kind, given, file.name)
    missing = [role for role in ("id", "text") if role not in chosen]
    if missing:
        raise _unknown(file, missing, chosen, kind)
    return chosen


def _pair_table(
    file: TableFile, split: str | None, known: Sequence[TableKind], given: Columns
) -> PairTable:
    """The columns of a table of pairs; where a table of texts is there, the pairs hold its ids."""
    chosen = choose(file.columns, "pairs", given, file.name)
    kinds: dict[str, TableKind] = {"query": "queries", "document": "documents"}
    for role, kind in kinds.items():
        if kind in known and f"{role}_id" in chosen:
            chosen[role] = chosen.pop(f"{role}_id")
        elif kind not in known and role not in chosen and f"{role}_id" in chosen:
            raise DataError(
                f"{file.name}: holds ids of {kind} ({shown(chosen[f'{role}_id'][0])}) and not their texts; "
                f"give these with --{kind} FILE"
            )
    missing = [role for role in ("query", "document") if role not in chosen]
    if missing:
        raise _unknown(file, missing, chosen, "pairs")
    if "documents" in known:
        chosen.pop("title", None)
    return PairTable(file, chosen, split, frozenset(role for role, _, _ in given.of("pairs")))


def _rows_of(
    files: Sequence[TableFile], columns: Sequence[Mapping[str, list[str]]]
) -> Iterator[TextRow]:
    """Yield id, title and text of each row."""
    for file, chosen in zip(files, columns, strict=True):
        named = {role: own[0] for role, own in chosen.items()}
        for rows in file.batches(list(dict.fromkeys(named.values()))):

            def place(
                at: int, numbers: Sequence[int] = rows.numbers, file: TableFile = file
            ) -> str:
                return file.place(numbers[at])

            values = {
                role: (as_ids if role == "id" else as_texts)(
                    rows.columns[column], column, place
                ).to_pylist()
                for role, column in named.items()
            }
            yield from zip(
                values["id"], values.get("title", repeat("")), values["text"], strict=False
            )


def _check_unique(
    builder: DataBuilder,
    stored: str,
    files: Sequence[TableFile],
    columns: Sequence[Mapping[str, list[str]]],
) -> None:
    table = builder.tables[stored]
    if len(table) == 0:
        raise DataError(f"{files[0].name}: has no rows")
    if pc.count_distinct(table.table["id"]).as_py() == len(table):
        return
    repeated = Counter(table.ids()).most_common(1)[0][0]
    places = []
    for file, chosen in zip(files, columns, strict=True):
        column = chosen["id"][0]
        for rows in file.batches([column]):
            ids = as_texts(rows.columns[column], column, lambda at: file.name).to_pylist()  # noqa: B023
            places += [
                file.place(number)
                for number, own in zip(rows.numbers, ids, strict=True)
                if own == repeated
            ]
    raise DataError(
        f"{places[-1]}: duplicate id {shown(repeated)}, first seen at {places[0]}; ids must be unique"
    )
