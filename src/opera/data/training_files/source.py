"""One or several training files as a data set: a file, a folder or a pattern."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from opera.core.errors import DataError
from opera.core.terminal import shortened, shown
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, digest_files, load_or_parse
from opera.data.training_files import flagembedding, tevatron
from opera.data.training_files.examples import ExampleStore
from opera.data.training_files.kinds import (
    TELLING,
    Kind,
    check_unread,
    is_pattern,
    kind_of,
    listed_files,
    splits_of,
)

READING = "4"  # part of the cache's key, not of fingerprints: change it when what is read of these files changes
ORDER: tuple[Kind, ...] = ("corpus", "queries", "flagembedding", "tevatron", "qrels")
"""Texts come before what names them by id."""


def holds_training_files(source: str) -> bool:
    """Whether a folder or pattern stands for training files and not for a BEIR folder. Cheap, and never raises."""
    if not is_pattern(source) and any(
        os.path.lexists(Path(source, name)) for name in ("queries.jsonl", "qrels")
    ):
        return False
    try:
        return any(kind_of(path) in TELLING for path in listed_files(source))
    except DataError:
        return False


def load_training_files(source: str) -> RetrievalData:
    """Read training files of FlagEmbedding or Tevatron, and FlagEmbedding's evaluation files beside them.

    A single file is the train split. In a folder the names of the files say the split, such as ``dev_nq.jsonl``; files
    that name none are train. Lines with the same query are merged. Without ids, documents are their texts: the corpus
    is the distinct ones, with the ids ``d0``, ``d1``, ... in order of first appearance, and queries likewise.

    Raises:
        DataError: naming file, line, rule and value.
    """
    single = Path(source).is_file()

    def kinds() -> dict[Path, Kind | None]:
        found = {path: kind_of(path) for path in listed_files(source)}
        # what is wrong with a single file of no known kind, this reader says best
        return (
            {path: kind if kind in TELLING else "flagembedding" for path, kind in found.items()}
            if single
            else found
        )

    def digest() -> str:
        read = kinds()
        salt = "flag" if single and "flagembedding" in read.values() else "training files"
        return digest_files([path for path, kind in read.items() if kind is not None], salt)

    def parse(builder: DataBuilder) -> None:
        _parse(builder, source, kinds(), {Path(source): "train"} if single else None)

    for path, kind in kinds().items():
        if kind is None:
            check_unread(path)
    place = Path(source).parent if is_pattern(source) else Path(source)
    name = place.stem if single else place.resolve().name
    return load_or_parse(digest, name, source, parse, reading=READING)


def _parse(
    builder: DataBuilder,
    source: str,
    kinds: Mapping[Path, Kind | None],
    splits: Mapping[Path, str] | None,
) -> None:
    store, telling = ExampleStore(), [path for path, kind in kinds.items() if kind in TELLING]
    splits = splits_of(telling) if splits is None else splits
    builder.write_texts("corpus", store.rows(_records(kinds, splits, store)))
    if len(store.queries) == 0:
        raise DataError(f"{source}: is empty: no training pairs")
    store.store(builder)
    if len(kinds) > 1:
        builder.notes[:0] = _files_notes(kinds, splits)


def _records(
    kinds: Mapping[Path, Kind | None], splits: Mapping[Path, str], store: ExampleStore
) -> Iterator[None]:
    """Read every file, texts first."""
    read: dict[Kind, Callable[[Path], Iterator[None]]] = {
        "corpus": lambda path: flagembedding.read_texts(path, "corpus", store),
        "queries": lambda path: flagembedding.read_texts(path, "queries", store),
        "flagembedding": lambda path: flagembedding.read_training(path, splits[path], store),
        "tevatron": lambda path: tevatron.read_training(path, splits[path], store),
        "qrels": lambda path: flagembedding.read_qrels(path, splits[path], store),
    }
    for kind in ORDER:
        for path in (path for path, found in kinds.items() if found == kind):
            yield from read[kind](path)


def _files_notes(kinds: Mapping[Path, Kind | None], splits: Mapping[Path, str]) -> list[str]:
    """Say which files make which split, and which are not read."""
    parts = []
    for split in dict.fromkeys(splits.values()):
        parts.append(
            f"{split} from {', '.join(shown(path.name) for path in splits if splits[path] == split)}"
        )
    notes = [shortened("; ".join(parts), 300)]
    if others := [shown(path.name) for path, kind in kinds.items() if kind is None]:
        notes.append(
            f"not read, since no trainer's keys are in them: {shortened(', '.join(others))}"
        )
    return notes
