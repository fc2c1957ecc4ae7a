"""What goes wrong with a disk, in one sentence instead of a traceback."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opera.core.errors import StorageError

ADVICE = {
    errno.ENOSPC: "free some space and run the command again",
    errno.EDQUOT: "free some of your quota and run the command again",
    errno.EFBIG: "a limit on the size of files is set (ulimit -f); raise it and run the command again",
    errno.EROFS: "choose another place",
    errno.EACCES: "change its permissions or choose another place",
    errno.EPERM: "change its permissions or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "check the disk",
}
"""What to do about an error of the operating system."""

FAILED_WRITING = (
    "No space left",
    "os error 28",
    "os error 27",
    "File too large",
    "failed writing",
    "unexpected pos",
    "iostream error",
)
"""How libraries report a full disk without an error number: safetensors the first three, torch the others."""


def storage_error(place: Path, error: OSError, note: str = "") -> StorageError:
    """Describe an error of the operating system, met while ``place`` was written; ``note`` says what the place is."""
    number = error.errno
    if number is None and "requested and" in str(error):  # numpy counts the bytes and gives no number
        number = errno.ENOSPC
    reason = os.strerror(number).lower() if number else str(error) or type(error).__name__
    advice = f"; {ADVICE[number]}" if number in ADVICE else ""
    return StorageError(f"{error.filename or place}{note}: cannot be written: {reason}{advice}")


@contextmanager
def writing(place: Path, note: str = "") -> Iterator[None]:
    """Turn a failure to write ``place``, or something in it, into one sentence.

    An error that names a file elsewhere passes: the block was reading that one.

    Raises:
        StorageError: naming the place, the reason and what to do.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None and not str(error.filename).startswith(str(place)):
            raise
        raise storage_error(place, error, note) from error
    except Exception as error:
        if not any(words in str(error) for words in FAILED_WRITING):
            raise
        raise storage_error(place, OSError(errno.ENOSPC, ""), note) from error
