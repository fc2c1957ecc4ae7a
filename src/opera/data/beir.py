"""BEIR folders: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{train,dev,test}.tsv``."""

from __future__ import annotations

import os
from pathlib import Path

from opera.core.errors import DataError
from opera.data.checks import check_id
from opera.data.names import SPLIT_NAMES

BEIR_FILES = ("corpus.jsonl", "queries.jsonl", "qrels")


def is_beir(folder: str | Path) -> bool:
    """Whether a folder has a file or folder of the BEIR layout. Never raises."""
    return any(os.path.lexists(Path(folder, name)) for name in BEIR_FILES)


def judged_splits(folder: Path) -> list[tuple[str, str]]:
    """Return split and file of the judgements in a BEIR folder.

    Raises:
        DataError: if a part of the folder is missing, or two files have the same split.
    """
    for name in BEIR_FILES:
        if not os.path.lexists(folder / name):
            raise DataError(f"{folder}: not a BEIR folder: {name} is missing")
    splits: dict[str, Path] = {}
    for path in sorted((folder / "qrels").glob("[!.]*.tsv")):
        check_id(f"{path.parent}: the name of a split", path.stem)
        split = SPLIT_NAMES.get(path.stem.casefold(), path.stem.casefold())
        if split in splits:
            raise DataError(
                f"{path}: has the same split as {splits[split].name}; keep one of the two files"
            )
        splits[split] = path
    if not splits:
        raise DataError(
            f"{folder}: not a BEIR folder: qrels/ has no .tsv file, such as qrels/train.tsv"
        )
    return [(split, str(path)) for split, path in splits.items()]
