"""Read files line by line, so that every error can name its line."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.errors import DataError, nearest
from opera.core.progress import progress
from opera.core.reading import NOT_UTF8, open_file, parse_json
from opera.core.terminal import printable, shortened, shown
from opera.data.encodings import advice_on, decompressed
from opera.data.texts import LONGEST_TEXT

PROGRESS_BYTES = 50_000_000
"""Files larger than this show a progress bar."""
HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class BadRow(Exception):  # noqa: N818 - it says what is wrong with a row
    """What is wrong with a row: a rule in words, and the value that stands in place of ``{}``."""

    def __init__(self, rule: str, value: object = "") -> None:
        super().__init__(rule, value)
        self.rule, self.value = rule, value

    def __str__(self) -> str:
        return self.rule.replace("{}", str(self.value))


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield (1-based line number, line without its line break) for each line that holds more than
    spaces.

    Lines end with ``\n``, ``\r\n`` or ``\r``. A byte-order mark at the start is skipped.

    Raises:
        DataError: if the file cannot be read, is not UTF-8, or has a line longer than any text may
            be.
    """
    for number, line in enumerate(text_lines(path), start=1):
        if line.strip(" \n"):
            yield number, line.removesuffix("\n")


def text_lines(
    path: Path, newline: str | None = None, encoding: str | None = None, *, strict: bool = True
) -> Iterator[str]:
    """Yield every line of a text file with its line break; ``.gz`` and ``.zst`` are decompressed.

    Args:
        path: the file.
        newline: as for :func:`open`: ``""`` leaves line breaks as they are.
        encoding: of the file; ``None``: UTF-8.
        strict: raise for bytes of another encoding; else each becomes half a character.

    Raises:
        DataError: as :func:`numbered_lines`.
    """
    try:
        with open_file(path) as raw, decompressed(raw, path) as plain:
            if encoding is None and b"\0" in plain.peek(4)[:4]:
                advice = NOT_UTF8 if strict else f"not UTF-8; {advice_on(path)}"
                raise DataError(f"{path}:1: {advice}")
            size = os.fstat(raw.fileno()).st_size
            what, hidden = f"reading {printable(path.name)}", size <= PROGRESS_BYTES
            # what is not UTF-8 becomes half a character, so that its line is known
            file = io.TextIOWrapper(plain, encoding or "utf-8-sig", "surrogateescape", newline)
            with file, progress(what, size, "B", hidden=hidden) as bar:
                for number, line in enumerate(
                    iter(partial(file.readline, LONGEST_TEXT), ""), start=1
                ):
                    if not number % 1000:
                        bar.update(raw.tell() - bar.n)
                    if len(line) >= LONGEST_TEXT:
                        raise DataError(
                            f"{path}:{number}: is a line of {LONGEST_TEXT:,} characters or more; "
                            "split it"
                        )
                    if strict and not line.isascii() and HALF_CHARACTER.search(line):
                        raise DataError(f"{path}:{number}: {NOT_UTF8}")
                    yield line
    except UnicodeError as error:
        raise DataError(f"{path}: cannot be read as {encoding} ({error})") from None
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason})") from None


def json_records(
    path: Path,
    required: Collection[str],
    optional: Collection[str],
    others: set[str] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) for each line of a JSON Lines file, with the right keys.

    Args:
        path: the file.
        required: keys that each record has.
        optional: keys that it may have.
        others: gets keys that nobody knows, as long as they are no misspelling of a known one that
            the record lacks; ``None``: it may have none.

    Raises:
        DataError: for a line that is not a JSON object, or has a missing or unknown key.
    """
    known = [*required, *optional]
    for number, record in json_objects(path):
        for key in record:
            if key not in known and key not in (others or ()):
                lacking = [name for name in known if others is None or name not in record]
                hint = nearest(key[:100], lacking)
                if others is not None and not hint:
                    others.add(key)
                    continue
                raise DataError(
                    f"{path}:{number}: unknown column {shown(key)}{hint} (known: "
                    f"{', '.join(known)})"
                )
        for key in required:
            if key not in record:
                has = shortened(", ".join(record)) or "none"
                raise DataError(f"{path}:{number}: column '{key}' is missing (it has: {has})")
        yield number, record


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record) for each line of a JSON Lines file.

    Raises:
        DataError: for a line that is not a JSON object.
    """
    for number, line in numbered_lines(path):
        try:
            yield number, json_object(line)
        except BadRow as error:
            raise DataError(f"{path}:{number}: {error}") from None


def json_object(line: str) -> dict[str, Any]:
    """Parse a line of JSON Lines.

    Raises:
        BadRow: if it is not a JSON object.
    """
    try:
        record = parse_json(line)
    except ValueError as error:
        rule, bracket, rest = str(error).partition(" (")
        raise BadRow(f"{rule}{bracket}{{}}", f"{rest}: {shown(line)}") from None
    if not isinstance(record, dict):
        raise BadRow("must be a JSON object, got {}", shown(record))
    return record
