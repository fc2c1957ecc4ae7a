"""Names of data that are no paths: how they start, and the short ones."""

from __future__ import annotations

import re
from pathlib import PurePath
from urllib.parse import parse_qsl

PREFIX = re.compile("(?!python:)[a-z]{2,}:")
"""The start of a source that is not a path: ``irds:``, ``hf:``, or the prefix of an extension."""
SPLIT_NAMES = {
    "train": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}
"""What others call the splits, and our names of them."""
TABLES = "tables:"
"""How the string form of several tables starts; see ``TableSource``."""


EXAMPLE = "example:"
"""How the name of a data set that comes with OPERA starts."""
MEMORY = "memory:"
"""How the source of data starts that was built in Python, and read from no file."""


def source_title(source: str) -> str:
    """Return what messages call a source: tables by their files, data of a program by name."""
    if source.startswith(TABLES):
        files = [
            path
            for key, path in parse_qsl(source.removeprefix(TABLES))
            if key.startswith(("pairs", "documents", "queries"))
        ]
        return ", ".join(files) or source
    return source.removeprefix(MEMORY)


def source_name(source: str) -> str | None:
    """Return the short name of a source that is no path, or of tables; ``None`` for any other.

    The name of ``irds:antique/train`` is ``antique``: that of a split says little. Tables have the
    name of their first pairs.
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
