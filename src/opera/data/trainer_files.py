"""Files of other trainers: FlagEmbedding's and Tevatron's JSON Lines, alone or in folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from opera.core.errors import DataError, OperaError
from opera.core.terminal import shortened, shown
from opera.data.lines import json_objects, json_records
from opera.data.names import SPLIT_NAMES
from opera.data.retrieval_data import RetrievalData, load_or_parse
from opera.data.store import DataBuilder, digest_files
from opera.data.tables.load import PASSAGE, PairReader, PairTable
from opera.data.tables.rows import JsonTable

Kind = Literal["corpus", "queries", "flagembedding", "tevatron", "qrels"]

READING = "6"  # part of the cache's key, not of fingerprints: change it when what is read changes
SUFFIXES = (".jsonl", ".json")
_TELLING: tuple[Kind, ...] = ("flagembedding", "tevatron", "qrels")
"""Kinds of which one file shows what its folder is."""
_KINDS: Mapping[Kind, tuple[Sequence[str], Mapping[str, str]]] = {
    "corpus": (["text"], {"document": "text", "document_id": "docid id", "title": "title"}),
    "queries": (["text"], {"query": "text", "query_id": "docid id"}),
    "flagembedding": (
        ["query", "pos"],
        {
            "query": "query", "document": "pos", "negative": "neg", "score": "pos_scores",
            "negative_score": "neg_scores", "prompt": "prompt",
        },
    ),
    "tevatron": (
        [],
        {
            "query_id": "query_id", "query": "query query_text", "document": "positive_passages",
            "negative": "negative_passages", "": "positive_document_ids negative_document_ids",
        },
    ),
    "qrels": (
        ["qid", "docid"], {"query_id": "qid", "document_id": "docid", "grade": "relevance"}
    ),
}  # fmt: skip
"""Keys that the records of a file must have, and the keys of each role: of several the first that
the first record has. Texts come first."""
_TEXTS = pa.list_(pa.string())
_LISTS = {
    **dict.fromkeys(("pos", "neg", "pos_scores", "neg_scores"), _TEXTS),
    **dict.fromkeys(("positive_passages", "negative_passages"), pa.list_(PASSAGE)),
}
"""Types of the columns that do not hold texts."""
_SPLITS = {**SPLIT_NAMES, "training": "train", "eval": "eval", "evaluation": "eval"}


def kind_of(keys: Set[str], path: Path) -> Kind | None:
    """Return what a file is by the keys of a record; ``None`` for any other."""
    if {"query", "pos"} <= keys:
        return "flagembedding"
    if keys & {"positive_passages", "positive_document_ids"}:
        return "tevatron"
    if {"qid", "docid"} <= keys:
        return "qrels"
    if "text" in keys and keys & {"id", "docid"}:
        return "queries" if path.stem.lower().endswith("queries") else "corpus"
    return None


def _kind_of_file(path: Path, *, among_others: bool) -> Kind | None:
    """What a file is by the first record that tells; ``None`` for anything else.

    Raises:
        OperaError: if a file of JSON Lines among others cannot be read: it would be left out.
    """
    try:
        kinds = (kind_of(record.keys(), path) for _, record in json_objects(path))
        return next((kind for kind in kinds if kind is not None), None)
    except OperaError:
        if among_others and path.suffix.lower() == ".jsonl":
            raise
        return None


def first_keys(path: Path) -> Set[str]:
    """Return the keys of the first record of a JSON Lines file; none if it has none.

    Never raises.
    """
    try:
        return next(json_objects(path), (0, dict[str, Any]()))[1].keys()
    except OperaError:
        return set()


def is_json_table(path: Path) -> bool:
    """Whether the first record of a JSON Lines file is not another trainer's. Never raises."""
    if path.suffix.lower() in (".gz", ".zst"):
        return True
    keys = first_keys(path)
    return bool(keys) and kind_of(keys, path) not in _TELLING and not keys & {"pos", "neg"}


def is_pattern(source: str) -> bool:
    """Whether a source is a pattern such as ``data/*.jsonl``, and no path of that name."""
    return has_magic(source) and not os.path.lexists(source)


def listed_files(source: str) -> list[Path]:
    """Return the JSON Lines files behind a file, a folder or a pattern, by name, but hidden ones.

    Raises:
        DataError: if a folder cannot be read.
    """
    if is_pattern(source):
        found = [Path(name) for name in glob(source)]  # noqa: PTH207 - the user's own pattern
    elif os.path.isdir(source):  # noqa: PTH112 - Path.is_dir raises where a name is too long
        try:
            found = list(Path(source).iterdir())
        except OSError as error:
            raise DataError(f"{source}: cannot be read ({error.strerror})") from None
    else:
        return [Path(source)]
    return sorted(
        path for path in found if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )


def holds_trainer_files(source: str) -> bool:
    """Whether a folder or pattern stands for trainers' files, not for a BEIR folder.

    Never raises.
    """
    beir = any(os.path.lexists(Path(source, name)) for name in ("queries.jsonl", "qrels"))
    if beir and not is_pattern(source):
        return False
    try:
        return any(kind_of(first_keys(path), path) in _TELLING for path in listed_files(source))
    except DataError:
        return False


def load_trainer_files(source: str) -> RetrievalData:
    """Read files of FlagEmbedding or Tevatron, and FlagEmbedding's evaluation files beside them.

    A single file is the train split. In a folder the names of the files say the split, such as
    ``dev_nq.jsonl``; files that name none are train. Documents and queries without an id are their
    texts, with the ids ``d0``, ``d1``, ... and ``q0``, ... in order of first appearance.

    Raises:
        DataError: naming file, line, rule and value.
    """
    single = Path(source).is_file()

    def kinds() -> dict[Path, Kind | None]:
        found = {
            path: _kind_of_file(path, among_others=not single) for path in listed_files(source)
        }
        if single and not {*found.values()} & {*_TELLING}:  # its reader says best what is wrong
            return dict.fromkeys(found, "flagembedding")
        return found

    def digest() -> str:
        read = kinds()
        salt = "flag" if single and "flagembedding" in read.values() else "training files"
        return digest_files([path for path, kind in read.items() if kind is not None], salt)

    def parse(builder: DataBuilder) -> None:
        _parse(builder, source, kinds(), single)

    place = Path(source).parent if is_pattern(source) else Path(source)
    name = place.stem if single else place.resolve().name
    return load_or_parse(digest, name, source, parse, reading=READING)


def _splits_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the split of each file: the last word of its name that names one, else ``train``.

    ``eval`` is the test split, and dev beside files of a test split.
    """
    named = {}
    for path in paths:
        words = [word for word in re.split("[^a-z]+", path.stem.lower()) if word in _SPLITS]
        named[path] = _SPLITS[words[-1]] if words else "train"
    evaluated = "dev" if "test" in named.values() else "test"
    return {path: evaluated if split == "eval" else split for path, split in named.items()}


def _parse(
    builder: DataBuilder, source: str, kinds: Mapping[Path, Kind | None], single: bool
) -> None:
    telling = [path for path, kind in kinds.items() if kind in _TELLING]
    named = dict.fromkeys(telling, "train") if single else _splits_of(telling)
    splits = [own for own in ("train", "dev", "test") if own in named.values()]
    numbers = {split: number for number, split in enumerate(splits)}
    unused: dict[Path, set[str]] = {path: set() for path in kinds}
    tables = [
        _table(path, kind, named.get(path, splits[0]), unused[path])
        for kind in _KINDS
        for path, own in kinds.items()
        if own == kind
    ]
    reader = PairReader(tables, builder.notes, lines=True, splits=numbers)
    reader.store(builder, source)
    if is_pattern(source):
        builder.places.clear()  # they would be read below the pattern
    if names := set().union(*unused.values()):
        builder.notes.append(f"unused columns: {shortened(', '.join(sorted(names)))}")
    train = builder.splits.get("train")
    for split, qrels in builder.splits.items():
        if train is not None and split != "train":
            shared = int(np.isin(qrels.query_rows, train.query_rows).sum())
            if shared:
                builder.notes.append(
                    f"{shared} of the {qrels.n_queries} queries of {split} are in train too"
                )
    if "tevatron" in kinds.values():
        reader.prompts[""] = None
    _store_prompt(builder, list(reader.prompts))
    if len(kinds) > 1:
        parts = [
            f"{split} from {', '.join(shown(path.name) for path in named if named[path] == split)}"
            for split in dict.fromkeys(named.values())
        ]
        notes = [shortened("; ".join(parts), 300)]
        if others := ", ".join(shown(path.name) for path, kind in kinds.items() if kind is None):
            notes.append(f"not read, since no trainer's keys are in them: {shortened(others)}")
        builder.notes[:0] = notes


def _table(path: Path, kind: Kind, split: str, unused: set[str]) -> PairTable:
    """Open a file; ``unused`` gets the columns that nobody reads."""
    required, roles = _KINDS[kind]
    optional = [key for keys in roles.values() for key in keys.split() if key not in required]
    first = first_keys(path)
    columns = {
        role: next((key for key in keys.split() if key in first), keys.split()[0])
        for role, keys in roles.items()
        if role
    }

    others = {key: columns[role] for role, keys in roles.items() if role for key in keys.split()}

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, record in json_records(path, required, optional, unused):
            if kind == "qrels":
                record.setdefault("relevance", 1)
            for key, column in others.items():  # a file may mix keys of one meaning
                if key in record and column not in record:
                    record[column] = record[key]
            for side in ("positive", "negative"):
                if (ids := record.get(f"{side}_document_ids")) is not None:
                    named = [{"docid": own} for own in ids] if isinstance(ids, list) else ids
                    record[f"{side}_passages"] = named
            yield number, record

    types = {column: _LISTS.get(column, pa.string()) for column in columns.values()}
    file = JsonTable(path, types, records)
    return PairTable(file, {role: [column] for role, column in columns.items()}, split)


def _store_prompt(builder: DataBuilder, prompts: list[str]) -> None:
    """Keep the prompt that all lines share."""
    if len(prompts) == 1 and prompts[0]:
        builder.query_prompt = prompts[0]
        builder.notes.append(
            f"every line has the prompt {shown(prompts[0])}: it goes before each query, unless "
            "query_prompt says otherwise"
        )
    elif len(prompts) > 1:
        named = " and ".join(map(shown, prompts[:2]))
        builder.notes.append(
            f"the lines have {len(prompts)} different prompts, such as {named}: none is used; give "
            "one for all with query_prompt, or write them into the queries"
        )
