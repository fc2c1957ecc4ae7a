"""Text files by lines: UTF-8 or the encoding that a user names, plain or compressed."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.errors import DataError, SettingError
from opera.core.progress import progress
from opera.core.reading import NOT_UTF8, open_file, parse_json
from opera.core.terminal import printable, shown
from opera.data.texts import LONGEST_TEXT

PROGRESS_BYTES = 50_000_000
"""Files larger than this show a progress bar."""
ALWAYS_UTF8 = "utf-8-sig"
"""The encoding of files for which nobody can name another."""
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
LATIN_1_CONTROL = re.compile("[\x80-\x9f]")
"""Letters of cp1252, read as latin-1, where every byte stands for something."""
LINES_TO_GUESS_FROM = 200_000
CHUNK_BYTES = 2**24
FIELD_ENDS = {b"", b",", b";", b"\t", b"|", b"\r", b"\n"}
MOST_SPACES = 100
"""Spaces that are looked for between a quotation mark and the end of its field."""
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
NOT_CP1252 = re.compile(
    # within words of cp1252 only letters stand, and letters with accents stand alone or in pairs
    rb"[A-Za-z][\x80-\x91\x93-\x99\x9b\x9d\x9f\xa1-\xac\xae-\xb6\xb8-\xbf][A-Za-z]"
    rb"|[\x81\x8d\x8f\x90\x9d]|[\xc0-\xff]{3}"
)


class BadRow(Exception):  # noqa: N818 - it says what is wrong with a row
    """What is wrong with a row: a rule in words, and the value that stands in place of ``{}``."""

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
        newline: as for :func:`open`: ``""`` leaves line breaks as they are.
        encoding: of the file; ``None``: UTF-8.
        strict: raise for bytes of another encoding; else each becomes half a character.

    Raises:
        DataError: if the file cannot be read, or a line is longer than any text may be.
    """
    try:
        with open_file(path) as raw, _decompressed(raw, path) as plain:
            if encoding is None and b"\0" in plain.peek(4)[:4]:  # UTF-16 passes as UTF-8
                advice = NOT_UTF8 if strict else f"not UTF-8; {encoding_advice(path)}"
                raise DataError(f"{path}:1: {advice}")
            size = os.fstat(raw.fileno()).st_size
            what, hidden = f"reading {printable(path.name)}", size <= PROGRESS_BYTES
            # bytes that are not UTF-8 become half characters, so that their line is known
            file = io.TextIOWrapper(plain, encoding or "utf-8-sig", "surrogateescape", newline)
            with file, progress(what, size, "B", hidden=hidden) as bar:
                lines = iter(partial(file.readline, LONGEST_TEXT), "")
                for number, line in enumerate(lines, start=1):
                    if not number % 1000:
                        bar.update(raw.tell() - bar.n)
                    if len(line) >= LONGEST_TEXT:
                        most = f"a line of {LONGEST_TEXT:,} characters or more"
                        raise DataError(f"{path}:{number}: is {most}; split it")
                    if strict and not line.isascii() and HALF_CHARACTER.search(line):
                        raise DataError(f"{path}:{number}: {NOT_UTF8}")
                    yield line
    except UnicodeError as error:
        raise DataError(f"{path}: cannot be read as {encoding} ({error})") from None
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason})") from None


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield the number and the text of each line that holds more than spaces.

    Lines end with ``\n``, ``\r\n`` or ``\r``. A byte-order mark at the start is skipped.

    Raises:
        DataError: as :func:`text_lines`, and for a line that is not UTF-8.
    """
    for number, line in enumerate(text_lines(path), start=1):
        if line.strip(" \n"):
            yield number, line.removesuffix("\n")


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and the record of each line of a JSON Lines file.

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


def check_characters(text: str, path: Path, encoding: str | None) -> None:
    """Check that a text holds no bytes of another encoding, which are half characters by now.

    Raises:
        BadRow: with the first such byte, and what to do.
    """
    if text.isascii():
        return
    if half := HALF_CHARACTER.search(text):
        if encoding == ALWAYS_UTF8:
            rule = f"byte {{}} is {NOT_UTF8}"
        else:
            advice = encoding_advice(path) if encoding is None else "correct such lines"
            rule = f"byte {{}} is not {encoding or 'UTF-8'}; {advice}"
        raise BadRow(rule, f"{ord(half[0]) - 0xDC00:#04x} (character {half.start() + 1})")
    if encoding == "iso8859-1" and (control := LATIN_1_CONTROL.search(text)):
        byte = f"{ord(control[0]):#04x} (character {control.start() + 1})"
        raise BadRow("byte {} is no character of latin-1; try --encoding cp1252", byte)


def checked_encoding(name: str | None) -> str | None:
    """Return the name that Python has for an encoding; ``None``, for UTF-8, stays.

    Raises:
        SettingError: for an encoding that Python does not know.
    """
    if name is None:
        return None
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # fails for codecs that are not of texts
    except (LookupError, ValueError, TypeError):
        raise SettingError(
            f"--encoding: must be an encoding that Python knows, such as cp1252, latin-1 or "
            f"utf-16, got {shown(name)}"
        ) from None
    return None if codec.name in ("utf-8", "utf-8-sig") else codec.name


def is_utf8(path: Path) -> bool:
    """Whether the first lines of a file are UTF-8, and not ASCII alone."""
    utf8_lines, other_lines, start = _first_lines(path)
    return bool(utf8_lines) and not other_lines and b"\0" not in start


def has_spaces_beside_quotes(path: Path) -> bool:
    """Whether a CSV file may have spaces between a quotation mark and the end of its field. They
    are part of the field by RFC 4180, but DuckDB drops them."""
    with open_file(path) as raw, _decompressed(raw, path) as file:
        text = b""
        while chunk := file.read(CHUNK_BYTES):
            text = text[-MOST_SPACES:] + chunk
            codes = np.frombuffer(text, dtype=np.uint8)
            marks = np.flatnonzero(codes == ord('"'))
            marks = marks[(marks > 0) & (marks < len(text) - 1)]
            before, after = codes[marks - 1], codes[marks + 1]
            single = (before != ord('"')) & (after != ord('"'))
            begins, ends = single & (before == ord(" ")), single & (after == ord(" "))
            if any(
                text[max(0, mark - MOST_SPACES) : mark].rstrip(b" ")[-1:] in FIELD_ENDS
                for mark in marks[begins]
            ) or any(
                text[mark + 1 : mark + MOST_SPACES].lstrip(b" ")[:1] in FIELD_ENDS
                for mark in marks[ends]
            ):
                return True
    return False


def encoding_advice(path: Path) -> str:
    """Say what the encoding of a file looks like that is not UTF-8, and what to do."""
    utf8_lines, other_lines, start = _first_lines(path)
    guess = next((name for mark, name in BYTE_ORDER_MARKS if start.startswith(mark)), None)
    if guess is None and b"\0" in start:
        guess = "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    if guess is None and utf8_lines:
        return "other lines are UTF-8, so encodings are mixed: correct such lines"
    if guess is None and other_lines and not NOT_CP1252.search(other_lines):
        guess = "cp1252"
    if guess is None:
        return "say which encoding it is with --encoding, such as cp1251 or shift_jis"
    return f"the file looks like {guess}; try --encoding {guess}"


def _first_lines(path: Path) -> tuple[int, bytes, bytes]:
    """Count the lines of UTF-8 beyond ASCII; return those of no UTF-8, and the first bytes."""
    utf8_lines, other_lines = 0, list[bytes]()
    with open_file(path) as raw, _decompressed(raw, path) as file:
        start = file.peek(4)[:4]
        for line in islice(file, LINES_TO_GUESS_FROM):
            if not line.isascii():
                try:
                    line.removeprefix(codecs.BOM_UTF8).decode()
                    utf8_lines += 1
                except UnicodeDecodeError:
                    other_lines.append(line)
    return utf8_lines, b"".join(other_lines), start


def _decompressed(raw: io.BufferedReader, path: Path) -> io.BufferedReader:
    """The contents of a file, decompressed as the end of its name says."""
    if path.name.lower().endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if path.name.lower().endswith(".zst"):
        return io.BufferedReader(pa.CompressedInputStream(raw, "zstd"))
    return raw
