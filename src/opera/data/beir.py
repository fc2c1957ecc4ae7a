"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{train,dev,test}.tsv``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from opera.core.errors import DataError
from opera.core.storage import exhausted
from opera.core.terminal import shortened, shown
from opera.data.checks import check_id, parse_grade
from opera.data.lines import json_records, text_field
from opera.data.names import SPLIT_NAMES
from opera.data.retrieval_data import BEIR_HEADER, RetrievalData, load_or_parse
from opera.data.store import DataBuilder, digest_files
from opera.data.tables.load import Placed, write_unique
from opera.data.tables.numbering import Texts
from opera.data.tables.pairs import PairBatch, PairStore
from opera.data.tables.rows import DelimitedTable


def load_beir(folder: Path) -> RetrievalData:
    """Read a BEIR folder; each ``.tsv`` file in ``qrels/`` is a split; ``val`` is dev.

    Raises:
        DataError: naming file, line, rule and value of the first error.
    """
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    for path in (corpus, queries):
        try:
            path.lstat()
        except FileNotFoundError:
            raise DataError(f"{folder}: not a BEIR folder: {path.name} is missing") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    qrels, left_out = _qrels_files(folder)

    def parse(builder: DataBuilder) -> None:
        for path, optional in ((corpus, ["title", "metadata"]), (queries, ["metadata"])):
            write_unique(builder, path.stem, str(path), partial(_texts, path, optional))
        files = {path.stem: path for path in qrels}
        splits = {name: number for number, name in enumerate(files)}
        PairStore(builder, str(folder), partial(_pairs, files), splits, lines=True).store()

    def digest() -> str:
        return digest_files([corpus, queries, *qrels], "beir")

    data = load_or_parse(digest, folder.resolve().name, str(folder), parse)
    splits = {SPLIT_NAMES.get(name.lower(), name): own for name, own in data.splits.items()}
    return replace(data, splits=splits, notes=(*data.notes, *left_out))


def _qrels_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the qrels files, in order, and a note on other files, such as those of macOS."""
    home = folder / "qrels"
    try:
        found = sorted(home.iterdir())
    except NotADirectoryError:
        raise DataError(f"{folder}: not a BEIR folder: qrels must be a folder") from None
    except FileNotFoundError:
        found = []
    except OSError as error:
        raise exhausted(home, error) or DataError(
            f"{home}: cannot be read ({error.strerror})"
        ) from None
    files: dict[str, Path] = {}
    others = []
    for path in found:
        if path.suffix.lower() != ".tsv" or path.name.startswith("."):
            others.append(shown(path.name))
            continue
        check_id(f"{home}: the name of a split", path.stem)
        split = SPLIT_NAMES.get(path.stem.casefold(), path.stem.casefold())
        if split in files:
            raise DataError(
                f"{path}: names the same split as {files[split].name}; keep one of the two"
            )
        files[split] = path
    if not files:
        raise DataError(
            f"{folder}: not a BEIR folder: qrels/ holds no .tsv file such as qrels/train.tsv"
        )
    listed = shortened(", ".join(others))
    note = f"in qrels/ only .tsv files that are not hidden are read, not {listed}"
    return list(files.values()), [note] if others else []


def _texts(path: Path, optional: list[str]) -> Iterator[Placed]:
    for number, record in json_records(path, ["_id", "text"], optional):
        place = f"{path}:{number}"
        identifier, title, text = (
            text_field(place, record, key) for key in ("_id", "title", "text")
        )
        check_id(f"{place}: column '_id'", identifier)
        yield place.__str__, (identifier, title, text)


def _pairs(files: Mapping[str, Path]) -> Iterator[PairBatch]:
    for split, path in enumerate(files.values()):
        table = DelimitedTable(path, lambda cells: True, tabs=True)
        if table.columns != BEIR_HEADER:
            raise DataError(
                f"{path}:1: the header must be {' TAB '.join(BEIR_HEADER)}, "
                f"got {shown(chr(9).join(table.columns))}"
            )
        empty = True
        for rows in table.batches(BEIR_HEADER):
            empty, n_rows = False, len(rows.numbers)
            query, document, grades = rows.columns.values()
            lines = zip(rows.numbers, grades.to_pylist(), strict=True)
            yield PairBatch(
                query=Texts(query),
                document=Texts(document),
                row=np.arange(n_rows),
                negative=np.zeros(n_rows, dtype=bool),
                split=np.full(n_rows, split, dtype=np.int8),
                place=lambda at, path=path, rows=rows: f"{path}:{rows.numbers[at]}",  # type: ignore[misc]
                grade=np.array(
                    [parse_grade(f"{path}:{at}", text) for at, text in lines], dtype=np.float64
                ),
            )
        if empty:
            raise DataError(f"{path}: has no judgements")
