"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{train,dev,test}.tsv``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.adapters import PairTable, add_pairs
from opera.data.checks import check_id
from opera.data.index import Index
from opera.data.names import SPLIT_NAMES
from opera.data.read import DelimitedTable, Table
from opera.data.relation import Relation
from opera.data.retrieval_data import BEIR_HEADER
from opera.data.store import DataBuilder
from opera.data.text_files import ALWAYS_UTF8, BadRow
from opera.data.trainer_formats import checked_records, files_in, text_of


def beir_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a BEIR folder, in order, and a note on others, such as those of macOS.

    Raises:
        DataError: if one is missing.
    """
    texts = [folder / "corpus.jsonl", folder / "queries.jsonl"]
    for path in texts:
        try:
            path.lstat()
        except FileNotFoundError:
            inside = sorted(str(qrels.parent) for qrels in folder.glob("*/qrels"))
            hint = f"; it holds some: pass one, such as {' or '.join(inside[:2])}" if inside else ""
            raise DataError(f"{folder}: not a BEIR folder: {path.name} is missing{hint}") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    home, splits, others = folder / "qrels", dict[str, Path](), []
    for path in files_in(home) if home.is_dir() else []:
        if path.suffix.lower() != ".tsv" or path.name.startswith("."):
            others.append(shown(path.name))
            continue
        check_id(f"{home}: the name of a split", path.stem)
        split = beir_split(path)
        if split in splits:
            raise DataError(
                f"{path}: names the same split as {splits[split].name}; keep one of the two"
            )
        splits[split] = path
    if not splits:
        raise DataError(
            f"{folder}: not a BEIR folder: qrels/ holds no .tsv file such as qrels/train.tsv"
        )
    listed = shortened(", ".join(others))
    note = f"in qrels/ only .tsv files that are not hidden are read, not {listed}"
    return texts + list(splits.values()), [note] if others else []


def beir_split(path: Path) -> str:
    """Return the split that a file of judgements is; ``val`` is dev."""
    return SPLIT_NAMES.get(path.stem.casefold(), path.stem.casefold())


def read_beir(folder: Path, relation: Relation, builder: DataBuilder) -> None:
    """Read a BEIR folder; each ``.tsv`` file in ``qrels/`` is a split.

    Raises:
        DataError: naming file, line, rule and value of the first error.
    """
    (documents, queries, *judged), _ = beir_files(folder)
    for kind, path, optional in (
        ("documents", documents, ["title", "metadata"]),
        ("queries", queries, ["metadata"]),
    ):
        table = Table(str(path), [], path.name)

        def rows(
            path: Path = path, optional: list[str] = optional, table: Table = table
        ) -> Iterator[tuple[Any, ...]]:
            for line, record in checked_records(path, ["_id", "text"], optional):
                relation.problems.count(table, 1)
                try:
                    yield line, *(text_of(record, name) for name in ("_id", "title", "text"))
                except BadRow as error:
                    relation.problems.add(table, [line], error.rule, partial(str, error.value))

        relation.kinds[kind] = table.name
        source = relation.stream_rows(rows(), dict.fromkeys(("id", "title", "text"), pa.string()))
        values = {"kind": f"'{kind}'", "id": "id", "title": "title", "text": "text"}
        relation.insert("texts", table, {"id": "_id"}, values, source)
    columns = {
        role: [name] for role, name in zip(("query", "document", "grade"), BEIR_HEADER, strict=True)
    }
    for path in judged:
        table = DelimitedTable(path, lambda cells: True, tabs=True, encoding=ALWAYS_UTF8)
        if table.columns != BEIR_HEADER:
            wanted, header = " TAB ".join(BEIR_HEADER), shown("\t".join(table.columns))
            raise DataError(f"{path}:1: the header must be {wanted}, got {header}")
        before = relation.size("pairs")
        add_pairs(relation, PairTable(table, columns, beir_split(path)))
        if relation.size("pairs") == before and not relation.problems.rows:
            raise DataError(f"{path}: has no judgements")
    Index(relation, builder, str(folder)).build([beir_split(path) for path in judged])
