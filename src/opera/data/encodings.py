"""Encodings of text files: the one that a user names, and what a file looks like."""

from __future__ import annotations

import codecs
import gzip
import io
import re
from itertools import islice
from pathlib import Path

import pyarrow as pa

from opera.core.errors import SettingError
from opera.core.reading import open_file
from opera.core.terminal import shown

LOOKED_AT = 200_000
"""Lines of a file that are looked at for its encoding."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_CP1252 = re.compile(
    # within words of cp1252 only letters stand, and letters with accents stand alone or in pairs
    rb"[A-Za-z][\x80-\x91\x93-\x99\x9b\x9d\x9f\xa1-\xac\xae-\xb6\xb8-\xbf][A-Za-z]"
    rb"|[\x81\x8d\x8f\x90\x9d]|[\xc0-\xff]{3}"
)


def decompressed(raw: io.BufferedReader, path: Path) -> io.BufferedReader:
    """What a file holds, by the end of its name."""
    if path.name.lower().endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if path.name.lower().endswith(".zst"):
        return io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
    return raw


def checked_encoding(name: str | None) -> str | None:
    """Return the name that Python has for an encoding; ``None``, for UTF-8, stays.

    Raises:
        SettingError: for an encoding that Python does not know.
    """
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
        "".encode(name)  # fails for codecs that are not of texts
    except (LookupError, ValueError, TypeError):
        raise SettingError(
            f"--encoding: must be an encoding that Python knows, such as cp1252, latin-1 or "
            f"utf-16, got {shown(name)}"
        ) from None
    return None if found.name in ("utf-8", "utf-8-sig") else found.name


def is_utf8(path: Path) -> bool:
    """Whether the first lines of a file are UTF-8, and not ASCII alone."""
    fine, spoilt, start = _looked_at(path)
    return bool(fine) and not spoilt and b"\0" not in start


def advice_on(path: Path) -> str:
    """Say what the encoding of a file looks like that is not UTF-8, and what to do."""
    fine, spoilt, start = _looked_at(path)
    found = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    if found is None and b"\0" in start:
        found = "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    if found is None and fine:
        return "other lines are UTF-8, so encodings are mixed: correct such lines"
    if found is None and spoilt and not _NOT_CP1252.search(spoilt):
        found = "cp1252"
    if found is None:
        return "say which encoding it is with --encoding, such as cp1251 or shift_jis"
    return f"the file looks like {found}; try --encoding {found}"


def _looked_at(path: Path) -> tuple[int, bytes, bytes]:
    """How many lines hold UTF-8 beyond ASCII; those that are not UTF-8; and how it begins."""
    fine, spoilt = 0, list[bytes]()
    with open_file(path) as raw, decompressed(raw, path) as file:
        start = file.peek(4)[:4]
        for line in islice(file, LOOKED_AT):
            if not line.isascii():
                try:
                    line.removeprefix(codecs.BOM_UTF8).decode()
                    fine += 1
                except UnicodeDecodeError:
                    spoilt.append(line)
    return fine, b"".join(spoilt), start
