"""Names of data sets that are not paths: their prefixes, and their short names."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath
from urllib.parse import parse_qsl

PREFIX = re.compile("(?!python:)[a-z]{2,}:")
"""The prefix of a source that is not a path: ``irds:``, ``hf:``, or that of an extension."""
SPLIT_NAMES = {
    "train": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}
"""OPERA's names of the splits, by their usual names."""
TABLES = "tables:"
"""The prefix of the string form of several tables; see ``TableSource``."""
EXAMPLE = "example:"
"""The prefix of a data set that comes with OPERA."""
MEMORY = "memory:"
"""The prefix of data that were built in memory, not read from files."""


def split_name(path: PurePath, names: Collection[str] = SPLIT_NAMES) -> str | None:
    """Return the name of a split in a path, or ``None``.

    A file or folder whose whole name is a split counts first, such as ``train`` in
    ``train/ab-test.csv``. Else the last word that means a split counts, such as test in
    ``my_test.csv``.
    """
    stem = PurePath(path.name.removesuffix(".gz").removesuffix(".zst")).stem
    parts = [part.lower() for part in (*path.parts[:-1], stem)]
    words = [word for part in parts for word in re.split("[^a-z]+", part)]
    named = [word for word in (*words, *parts) if word in names]
    return named[-1] if named else None


def source_title(source: str) -> str:
    """Return the title of a source for messages: the files of tables, or the name of the data."""
    if source.startswith(TABLES):
        files = [
            path
            for key, path in parse_qsl(source.removeprefix(TABLES))
            if key.startswith(("pairs", "documents", "queries"))
        ]
        return ", ".join(files) or source
    return source.removeprefix(MEMORY)


def source_name(source: str) -> str | None:
    """Return the short name of tables, or of a source with a prefix; ``None`` for a path.

    The name of ``irds:antique/train`` is ``antique``, without the split. Tables have the name of
    their first file of pairs.
    """
    if source.startswith(TABLES):
        pairs = [
            path for key, path in parse_qsl(source.removeprefix(TABLES)) if key.startswith("pairs")
        ]
        return PurePath(pairs[0].rstrip("/")).name.partition(".")[0] if pairs else source
    kind = PREFIX.match(source)
    if kind is None:
        return None
    name = source[kind.end() :].rstrip("/")
    if kind[0] == "irds:":
        parts = name.split("/")
        name = ([part for part in parts if part not in SPLIT_NAMES] or parts)[-1]
    name = name.rpartition("/")[2]
    return source if name in ("", ".", "..") else name
