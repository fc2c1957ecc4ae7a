"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{train,dev,test}.tsv``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.checks import check_id
from opera.data.lines import json_records
from opera.data.names import SPLIT_NAMES
from opera.data.retrieval_data import BEIR_HEADER, RetrievalData, load_or_parse
from opera.data.store import DataBuilder, digest_files
from opera.data.tables.load import PairReader, PairTable, write_texts
from opera.data.tables.problems import Problems
from opera.data.tables.rows import ALWAYS_UTF8, DelimitedTable, JsonTable

_TEXTS = {"id": "_id", "title": "title", "text": "text"}


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
            inside = sorted(str(each.parent) for each in folder.glob("*/qrels"))
            hint = f"; it holds some: pass one, such as {' or '.join(inside[:2])}" if inside else ""
            raise DataError(f"{folder}: not a BEIR folder: {path.name} is missing{hint}") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    qrels, left_out = _qrels_files(folder)

    def parse(builder: DataBuilder) -> None:
        for path, optional in ((corpus, ["title", "metadata"]), (queries, ["metadata"])):
            records = partial(json_records, path, ["_id", "text"], optional)
            table = JsonTable(path, dict.fromkeys(_TEXTS.values(), pa.string()), records)
            write_texts(
                builder, path.stem, [(table, {role: [own] for role, own in _TEXTS.items()})]
            )
        columns = {
            role: [own]
            for role, own in zip(("query", "document", "grade"), BEIR_HEADER, strict=True)
        }
        tables = [PairTable(_judgements(path), columns, path.stem) for path in qrels]
        PairReader(tables, builder.notes, lines=True).store(builder, str(folder))

    def digest() -> str:
        return digest_files([corpus, queries, *qrels], "beir")

    data = load_or_parse(digest, folder.resolve().name, str(folder), parse)
    splits = {SPLIT_NAMES.get(name.lower(), name): own for name, own in data.splits.items()}
    return replace(data, splits=splits, notes=(*data.notes, *left_out))


def _qrels_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the qrels files, in order, and a note on other files, such as those of macOS."""
    home = folder / "qrels"
    try:
        found = sorted(home.iterdir()) if home.is_dir() else []
    except OSError as error:
        raise DataError(f"{home}: cannot be read ({error.strerror})") from None
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


def _judgements(path: Path) -> DelimitedTable:
    table = DelimitedTable(path, lambda cells: True, tabs=True, encoding=ALWAYS_UTF8)
    if table.columns != BEIR_HEADER:
        raise DataError(
            f"{path}:1: the header must be {' TAB '.join(BEIR_HEADER)}, "
            f"got {shown(chr(9).join(table.columns))}"
        )
    if not any(table.batches(BEIR_HEADER, Problems())):
        raise DataError(f"{path}: has no judgements")
    return table
