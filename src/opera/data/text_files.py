"""Read text files by lines, in UTF-8 or the user's encoding, plain or compressed."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.errors import DataError, SettingError
from opera.core.files import NOT_UTF8, open_file, parse_json
from opera.core.terminal import shown

ALWAYS_UTF8 = "utf-8-sig"
"""The encoding of files for which no option exists."""
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
NAME_ENCODING = "not UTF-8; give the encoding with --encoding, such as cp1252 (Windows) or utf-16"
CHUNK_BYTES = 2**24


class BadRow(Exception):  # noqa: N818 - the name describes the row
    """A row that breaks a rule: the rule in words, and the value that replaces ``{}`` in it."""

    def __init__(self, rule: str, value: object = "") -> None:
        super().__init__(rule, value)
        self.rule, self.value = rule, value

    def __str__(self) -> str:
        return self.rule.replace("{}", str(self.value))


def text_lines(
    path: Path, newline: str | None = None, encoding: str | None = None, *, strict: bool = True
) -> Iterator[str]:
    """Yield every line of a text file with its line break; ``.gz`` and ``.zst`` are decompressed.

    Args:
        path: the file.
        newline: as for :func:`open`: ``""`` does not change line breaks.
        encoding: the encoding of the file; ``None``: UTF-8.
        strict: whether bytes of another encoding raise an error. Otherwise they become half
            characters.

    Raises:
        DataError: if the file cannot be read.
    """
    try:
        with open_file(path) as raw, _decompressed(raw, path) as plain:
            if encoding is None and b"\0" in plain.peek(4)[:4]:  # UTF-16 passes as UTF-8
                raise DataError(f"{path}:1: {NOT_UTF8 if strict else NAME_ENCODING}")
            # bytes that are not UTF-8 become half characters, so the error can have the line
            file = io.TextIOWrapper(plain, encoding or "utf-8-sig", "surrogateescape", newline)
            for line_number, line in enumerate(file, start=1):
                if strict and not line.isascii() and HALF_CHARACTER.search(line):
                    raise DataError(f"{path}:{line_number}: {NOT_UTF8}")
                yield line
    except UnicodeError as error:
        raise DataError(f"{path}: cannot be read as {encoding} ({error})") from None
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason})") from None


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


def check_characters(text: str, encoding: str | None) -> None:
    """Check that a text has no bytes of another encoding, which have become half characters.

    Raises:
        BadRow: with the first such byte, and advice.
    """
    if text.isascii():
        return
    if half := HALF_CHARACTER.search(text):
        advice = {None: NAME_ENCODING, ALWAYS_UTF8: NOT_UTF8}
        rule = advice.get(encoding, f"not {encoding}; correct the line")
        byte = f"{ord(half[0]) - 0xDC00:#04x} (character {half.start() + 1})"
        raise BadRow(f"byte {{}} is {rule}", byte)


def checked_encoding(name: str | None) -> str | None:
    """Return Python's name of an encoding, or ``None`` for UTF-8.

    Raises:
        SettingError: for an encoding that Python does not know.
    """
    if name is None:
        return None
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # raises an error for codecs that do not encode text
    except (LookupError, ValueError, TypeError):
        raise SettingError(
            f"--encoding: must be an encoding that Python knows, such as cp1252, latin-1 or "
            f"utf-16, got {shown(name)}"
        ) from None
    return None if codec.name in ("utf-8", "utf-8-sig") else codec.name


def is_utf8(path: Path, encoding: str) -> bool:
    """Whether the start of a file is UTF-8 and would be other text in ``encoding``."""
    with open_file(path) as raw, _decompressed(raw, path) as file:
        start = file.read(CHUNK_BYTES)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    same_in_both = text.isascii() and "a".encode(encoding) == b"a"
    return not same_in_both and "\0" not in text


def _decompressed(raw: io.BufferedReader, path: Path) -> io.BufferedReader:
    """The contents of a file, decompressed if the suffix is ``.gz`` or ``.zst``."""
    if path.name.lower().endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if path.name.lower().endswith(".zst"):
        return io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
    return raw
