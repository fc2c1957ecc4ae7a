"""Write the user's files of pairs without the pairs that a review found wrong.

Columns, order, encoding and every byte of the other rows stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opera.core.arrays import IntArray, is_among
from opera.core.errors import DataError
from opera.core.files import replace_file
from opera.core.terminal import counted, shown
from opera.data.copies import text_keys
from opera.data.decisions import Decisions
from opera.data.names import TableSource
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.source_rows import name_listed_pairs
from opera.data.sources import add_files
from opera.data.table_files import files_of_beir
from opera.data.tables import Table, TextFile
from opera.data.texts import CorpusText

MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""The marks that may begin a text file, and the encodings that they stand for."""


@dataclass(frozen=True)
class CleanedFile:
    """A file that was written.

    Attributes:
        path: the file.
        removed: how many rows it lacks.
        added: how many rows it has in addition.
    """

    path: Path
    removed: int
    added: int


def write_clean_files(
    data: RetrievalData,
    tables: TableSource,
    decisions: Decisions,
    paths: Callable[[Sequence[Path]], Sequence[Path]],
    *,
    with_missing: bool,
) -> list[CleanedFile]:
    """Write the files of pairs of a data set without the wrong pairs.

    Args:
        data: the data set.
        tables: its files.
        decisions: about the rows of ``data``.
        paths: returns the path of each new file, from the paths of the user's files.
        with_missing: whether to add a row for each missing pair, to the first file of pairs.

    Raises:
        DataError: for a compressed or an Arrow file; if OPERA does not find a wrong pair in a file;
            and if a row has a wrong pair and a correct one, as a list of documents may.
    """
    tables = files_of_beir(tables)
    wrong = _wrong_pairs(data, decisions)
    with TemporaryDirectory() as folder:
        relation = Relation(Path(folder), skip_bad_rows=tables.skip_bad_rows)
        files = add_files(relation, tables)
        for file in files:
            _check_format(file)
        rows = _rows_of(relation, data, wrong, tables)
        roles = next(roles for table, roles in relation.files if table is files[0])
    added = list(_missing_rows(data, decisions, roles, tables)) if with_missing else []
    written = []
    sources = [Path(file.name) for file in files]
    for file, path in zip(files, paths(sources), strict=True):
        removed, new_rows = rows.get(file, []), added if file is files[0] else []
        replace_file(path, partial(_write, table=file, removed=removed, new_rows=new_rows))
        written.append(CleanedFile(path, len(removed), len(new_rows)))
    return written


def _wrong_pairs(data: RetrievalData, decisions: Decisions) -> tuple[IntArray, IntArray]:
    """Return the query and document rows of the relevant pairs with the texts of wrong pairs."""
    wrong_keys = decisions.select(~decisions.relevant).keys(data)
    query_rows, doc_rows = [], []
    for qrels in data.splits.values():
        is_wrong = is_among(text_keys(data, qrels), wrong_keys) & (qrels.grades > 0)
        query_rows.append(qrels.query_rows[qrels.query_index[is_wrong]])
        doc_rows.append(qrels.doc_rows[is_wrong])
    return np.concatenate(query_rows), np.concatenate(doc_rows)


def _check_format(file: Table) -> None:
    path = Path(file.name)
    if path.suffix in (".gz", ".zst"):
        raise DataError(f"{path}: is compressed; decompress it, and train on the plain file")
    if not isinstance(file, TextFile) and path.suffix.lower() != ".parquet":
        raise DataError(f"{path}: must be CSV, TSV, JSON Lines or Parquet to be cleaned")


def _rows_of(
    relation: Relation, data: RetrievalData, pairs: tuple[IntArray, IntArray], tables: TableSource
) -> Mapping[Table, list[int]]:
    """Find the table rows of pairs in each file."""
    name_listed_pairs(relation, data, pairs, tables)
    if missing := relation.run("listed pairs without a row"):
        query_id, doc_id = map(shown, missing[0])
        raise DataError(
            f"{tables}: no row has the pair of query {query_id} and document {doc_id} "
            f"({counted(len(missing), 'such pair')})"
        )
    removed: dict[Table, list[int]] = {}
    for file_number, table_row, documents, wrong in relation.run("rows of listed pairs"):
        table, _ = relation.files[file_number]
        if wrong < documents:
            raise DataError(
                f"{table.location(table_row)}: has {documents} documents, and only {wrong} of them "
                "are wrong; write one document per row, or correct this row yourself"
            )
        removed.setdefault(table, []).append(table_row)
    return removed


def _missing_rows(
    data: RetrievalData, decisions: Decisions, roles: Mapping[str, str], tables: TableSource
) -> Iterator[dict[str, str]]:
    """Yield the cells of a new row for each missing pair, by column."""
    known = [text_keys(data, qrels)[qrels.grades > 0] for qrels in data.splits.values()]
    missing = decisions.select(
        decisions.relevant & ~is_among(decisions.keys(data), np.concatenate(known))
    )
    queries, corpus = data.queries, data.corpus
    query_ids, doc_ids = queries.ids(missing.query_rows), corpus.ids(missing.doc_rows)
    corpus_text: CorpusText = "text" if "title" in roles else "title_text"
    # a missing pair counts as much as the mean pair, as in training
    weights = [qrels.weights.mean() for qrels in data.splits.values() if qrels.weights is not None]
    values = {
        "query_id": query_ids,
        "document_id": doc_ids,
        "query": query_ids if tables.queries is not None else queries.texts(missing.query_rows),
        "title": corpus.titles(missing.doc_rows),
        "document": doc_ids
        if tables.documents is not None
        else corpus.texts(missing.doc_rows, corpus_text),
        "grade": [str(data.lowest_grade)] * len(doc_ids),
        "weight": [f"{np.mean(weights):g}" if weights else "1"] * len(doc_ids),
        "split": ["train"] * len(doc_ids),
    }
    for number in range(len(doc_ids)):
        yield {roles[role]: texts[number] for role, texts in values.items() if role in roles}


def _write(
    path: Path, table: Table, removed: Collection[int], new_rows: Sequence[Mapping[str, str]]
) -> None:
    if isinstance(table, TextFile):
        with path.open("wb") as file:
            _write_text(file, table, removed, new_rows)
        return
    original = pq.read_table(table.name)
    numbers = np.arange(1, len(original) + 1)  # as ArrowTable counts
    kept = original.filter(pa.array(~np.isin(numbers, list(removed))))
    added = pa.Table.from_pylist([dict(row) for row in new_rows], schema=original.schema)
    pq.write_table(pa.concat_tables([kept, added]), path)


def _write_text(
    file: BinaryIO,
    table: TextFile,
    removed: Collection[int],
    new_rows: Sequence[Mapping[str, str]],
) -> None:
    """Copy the lines of a file except those of some rows, and add rows."""
    with table.path.open("rb") as original:
        start = original.read(3)
    mark = next((mark for mark in MARKS if start.startswith(mark)), b"")
    encoding = MARKS[mark] if mark else table.encoding or "utf-8"
    file.write(mark)
    skipped = {line for row in removed for line in table.lines_of(row)}
    line_break, last = "\n", "\n"
    for number, line in enumerate(table.lines(""), start=1):
        if number == 1:
            line_break = line[len(line.rstrip("\r\n")) :] or "\n"
        if number not in skipped:
            file.write(line.encode(encoding, "surrogateescape"))
            last = line
    if new_rows and not last.endswith(("\r", "\n")):
        file.write(line_break.encode(encoding))
    for row in new_rows:
        file.write((table.format_row(row) + line_break).encode(encoding))
