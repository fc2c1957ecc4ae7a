"""Open the files that users name: regular files only, so that no pipe or device keeps OPERA waiting."""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
from pathlib import Path

from opera.core.paths import KINDS

MOST_BYTES = 2**28
"""Of a file that is read at once; data files, which may be larger, are read line by line."""


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading bytes. Every file that OPERA reads is opened here.

    Raises:
        OSError: if it cannot be opened or is no regular file; its ``strerror`` says why.
    """
    try:
        _check_regular(path.stat(), path)  # opening a device may already do something
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is {not_utf8(content, error)}") from None


def not_utf8(start: bytes, error: UnicodeDecodeError) -> str:
    """Say what is wrong with a file that begins with ``start`` and cannot be decoded."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "not UTF-8 but UTF-16; convert the file to UTF-8"
    return f"not UTF-8 ({error.reason}); convert the file to UTF-8"


def _check_regular(status: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
        raise OSError(code, f"it is {KINDS.get(kind, 'no file')}", str(path))
