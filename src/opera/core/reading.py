"""Read a user's files. Only regular files are opened, because opening a pipe could wait forever."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any

from opera.core.paths import kind_of_place

NOT_UTF8 = "not UTF-8; convert the file to UTF-8"


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to a regular file, to read bytes.

    Raises:
        OSError: if the file cannot be opened or is not a regular file; ``strerror`` says why.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, f"it is {kind_of_place(path)}", str(path))
    return path.open("rb")


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, without a byte-order mark.

    Raises:
        OSError: as :func:`open_file`.
        ValueError: if the file is not UTF-8, with the line.
    """
    with open_file(path) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is {NOT_UTF8}") from None


def parse_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: if the text is not JSON, with a message that can follow the name of a file.
    """
    try:
        value = json.loads(text)
        if "\\u" in text:  # an escape may be half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"contains half a character ({half!r}, a cut emoji); remove it") from None
    except json.JSONDecodeError as error:
        line = "" if error.lineno == 1 else f"line {error.lineno}, "
        raise ValueError(
            f"not JSON ({error.msg.removesuffix(' at')} at {line}column {error.colno})"
        ) from None
    return value


def read_json(path: Path) -> Any:
    """Parse a JSON file; a byte-order mark at its start is skipped.

    Raises:
        OSError: as :func:`open_file`.
        ValueError: as :func:`parse_json`, and if the file is not UTF-8.
    """
    return parse_json(read_text(path))
