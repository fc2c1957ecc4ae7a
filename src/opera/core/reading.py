"""Open the files that users name: regular files only, so that no pipe or device keeps OPERA waiting."""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
from pathlib import Path

from opera.core.paths import KINDS
from opera.core.storage import exhausted

SHOWS_WIDTH = 16
"""Bytes from the start of a file by which UTF-16 and UTF-32 are known."""
MOST_BYTES = 2**28
"""Of a file that is read at once; data files, which may be larger, are read line by line."""


class WideError(ValueError):
    """A file is in UTF-16 or UTF-32."""


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading bytes. Every file that OPERA reads is opened here.

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
    if wide := _wide_encoding(content[:SHOWS_WIDTH]):
        raise ValueError(f"line 1 is {wide}; convert the file to UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is {not_utf8(content, error)}") from None


def not_utf8(start: bytes, error: UnicodeDecodeError) -> str:
    """Say what is wrong with a file that begins with ``start`` and cannot be decoded."""
    return f"{_wide_encoding(start) or f'not UTF-8 ({error.reason})'}; convert the file to UTF-8"


def check_not_wide(start: bytes) -> None:
    """Refuse a file in UTF-16 or UTF-32 whose bytes are UTF-8 too: ASCII with NUL bytes between the letters.

    Raises:
        WideError: naming the encoding.
    """
    if wide := _wide_encoding(start):
        raise WideError(f"{wide}; convert the file to UTF-8")


def _wide_encoding(start: bytes) -> str:
    """Say that a file is in UTF-16 or UTF-32, marked or not, by its first bytes; empty if it is in neither."""
    marks = {
        "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
        "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    }
    found = [
        name for name, bytes_ in marks.items() if start.startswith(bytes_)
    ]  # one mark starts with the other
    head = start[: min(len(start), SHOWS_WIDTH) // 4 * 4]
    where = {
        at % 4 for at, byte in enumerate(head) if byte == 0 and not (head[at % 4 :: 4].strip(b"\0"))
    }
    if len(where) == 3:
        found = ["UTF-32"]
    elif not found and where in ({0, 2}, {1, 3}):
        found = ["UTF-16"]
    return f"not UTF-8 but {found[0]}" if found else ""


def _check_regular(status: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
        raise OSError(code, f"it is {KINDS.get(kind, 'no file')}", str(path))
