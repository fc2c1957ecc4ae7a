"""Which trainer reads a JSON Lines file, by the keys of its first record; and which split it is, by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Set
from glob import glob, has_magic
from pathlib import Path
from typing import Literal

from opera.core.errors import DataError, OperaError
from opera.core.reading import open_file
from opera.core.storage import exhausted
from opera.core.strict_json import parse_json
from opera.data.lines import json_objects
from opera.data.names import SPLIT_NAMES

Kind = Literal["flagembedding", "tevatron", "corpus", "queries", "qrels"]

TELLING: tuple[Kind, ...] = ("flagembedding", "tevatron", "qrels")
"""Kinds of which one file shows what its folder is."""
_NAMES: Mapping[Kind, str] = {
    "flagembedding": "FlagEmbedding (query, pos)",
    "tevatron": "Tevatron (positive_passages or positive_document_ids)",
    "corpus": "documents (an id and text)",
    "queries": "queries (id, text)",
    "qrels": "judgements (qid, docid)",
}
SUFFIXES = (".jsonl", ".json")
MOST_FIRST = 2**24
"""Bytes of a first record that are looked at."""
_SPLITS = {**SPLIT_NAMES, "training": "train", "eval": "eval", "evaluation": "eval"}


def kind_of(path: Path) -> Kind | None:
    """Return what a file is by its first record; ``None`` for any other. Cheap, and never raises."""
    return kind_of_keys(first_keys(path), path)


def kind_of_keys(keys: Set[str], path: Path) -> Kind | None:
    """Return what a file is by the keys of a record."""
    if {"query", "pos"} <= keys:
        return "flagembedding"
    if keys & {"positive_passages", "positive_document_ids"}:
        return "tevatron"
    if {"qid", "docid"} <= keys:
        return "qrels"
    if "text" in keys and keys & {"id", "docid"}:
        return "queries" if path.stem.lower().endswith("queries") else "corpus"
    return None


def first_keys(path: Path) -> frozenset[str]:
    """Return the keys of the first record of a JSON Lines file; none where there is no such record."""
    try:
        with open_file(path) as file:
            lines = iter(lambda: file.readline(MOST_FIRST), b"")
            first = next((line for line in lines if line.strip()), b"")
        record = parse_json(first.decode("utf-8-sig"))
    except (OSError, ValueError, OperaError):
        return frozenset()
    return frozenset(record) if isinstance(record, dict) else frozenset()


def check_unread(path: Path) -> None:
    """Check that no later record shows a kind in a file whose first record shows none, so that it is not read.

    Raises:
        DataError: naming the line of such a record.
    """
    records = json_objects(path)
    while True:
        try:
            number, record = next(records)
        except (StopIteration, DataError):  # the end; or something else than JSON Lines lies there
            return
        if (kind := kind_of_keys(record.keys(), path)) is not None:
            raise DataError(
                f"{path}:{number}: has the columns of a file of {_NAMES[kind]}, but the first record lacks some; "
                "give every record the same columns, null where it has no value, or move the file elsewhere"
            )


def is_pattern(source: str) -> bool:
    """Whether a source is a pattern such as ``data/*.jsonl``, and no file or folder of that name."""
    return has_magic(source) and not os.path.lexists(source)


def listed_files(source: str) -> list[Path]:
    """Return the JSON Lines files that a file, a folder or a pattern stands for, by name; hidden ones are left out.

    Raises:
        DataError: if a folder cannot be read.
    """
    if is_pattern(source):
        found = [Path(name) for name in glob(source)]  # noqa: PTH207 - the user's own pattern, absolute or not
    elif os.path.isdir(source):  # noqa: PTH112 - Path.is_dir raises where a name is too long
        try:
            found = list(Path(source).iterdir())
        except OSError as error:
            raise exhausted(Path(source), error) or DataError(
                f"{source}: cannot be read ({error.strerror})"
            ) from None
    else:
        return [Path(source)]
    return sorted(
        path for path in found if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )


def splits_of(paths: Iterable[Path]) -> Mapping[Path, str]:
    """Return the split of each file: the last word of its name that names one, ``train`` where none does.

    ``eval`` is the test split, and dev beside files of a test split.
    """
    named = {}
    for path in paths:
        words = [word for word in re.split("[^a-z]+", path.stem.lower()) if word in _SPLITS]
        named[path] = _SPLITS[words[-1]] if words else "train"
    evaluated = "dev" if "test" in named.values() else "test"
    return {path: evaluated if split == "eval" else split for path, split in named.items()}
