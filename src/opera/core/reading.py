"""The door to files that users name: regular files only, so that nothing keeps OPERA waiting."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from opera.core.paths import KINDS
from opera.core.storage import exhausted

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
