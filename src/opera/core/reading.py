"""The door to files that users name: regular files only, so that nothing keeps OPERA waiting; and
JSON as the standard has it (RFC 8259), without what Python's reader lets pass.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from opera.core.paths import KINDS
from opera.core.storage import exhausted
from opera.core.terminal import shortened, shown

MOST_BYTES = 2**28
"""Of a file that is read at once; data files, which may be larger, are read line by line."""
NOT_UTF8 = "not UTF-8; convert the file to UTF-8"


def is_wide(start: bytes) -> bool:
    """Whether a file that is UTF-8 by its bytes is in UTF-16 or UTF-32: ASCII between NUL bytes."""
    return b"\0" in start[:4]


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading bytes.

    Raises:
        OSError: if it cannot be opened or is no regular file; its ``strerror`` says why.
        StorageError: if the machine is short of something, as of open files.
    """
    try:
        _check_regular(path.stat(), path)  # opening a device may already do something
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise exhausted(path, error) or error from None
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds a NUL character", str(path)) from None
    try:
        _check_regular(os.fstat(descriptor), path)  # it may have changed in between
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file without its byte-order mark, if there is one.

    Raises:
        OSError: as :func:`open_file`.
        ValueError: if it is not UTF-8, naming the line, or has more than :data:`MOST_BYTES`.
    """
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES:,} bytes, which no file of its kind has")
        content = file.read()
    if is_wide(content):
        raise ValueError(f"line 1 is {NOT_UTF8}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is {NOT_UTF8}") from None


def _check_regular(status: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
        raise OSError(code, f"it is {KINDS.get(kind, 'no file')}", str(path))


MAX_DEPTH = 100
"""Lists and objects within each other."""
MAX_DIGITS = 1000
"""Digits of a whole number; reading one takes time that grows with their square."""


def parse_json(text: str) -> Any:
    """Parse JSON. Every JSON text that OPERA reads is parsed here.

    Raises:
        ValueError: in words that can follow the name of a file or line, for what is not JSON, and
            for a key that occurs twice, NaN or an infinite number, half a character (a lone
            surrogate), values nested more than :data:`MAX_DEPTH` deep, or a whole number of more
            than :data:`MAX_DIGITS` digits.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        line = "" if error.lineno == 1 else f"line {error.lineno}, "
        place = f"{line}column {error.colno}"
        raise ValueError(f"not JSON ({error.msg.removesuffix(' at')} at {place})") from None
    if "\\u" in text:  # else a file that is UTF-8 has none
        _check_characters(value)
    return value


def read_json(path: Path) -> Any:
    """Parse a JSON file; a byte-order mark at its start is skipped.

    Raises:
        OSError: if it cannot be read, or is no regular file.
        ValueError: as :func:`parse_json`, and if it is not UTF-8.
    """
    return parse_json(read_text(path))


def _depth(text: str) -> int:
    """How deep lists and objects are nested in a text that may be JSON."""
    steps = {"[": 1, "{": 1, "]": -1, "}": -1}
    brackets = re.findall(r"[][{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text))
    return max(accumulate(map(steps.__getitem__, brackets)), default=0)


def _check_characters(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"holds half a character ({half!r}); remove it") from None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise ValueError(f"the key {shown(twice)} occurs twice")
    return values


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(
            f"holds a whole number of {len(digits):,} digits; at most {MAX_DIGITS:,} are read"
        )
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"holds the number {shortened(digits)}, which is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is no number of JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
