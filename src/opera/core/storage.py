"""What goes wrong with a disk, in one sentence instead of a traceback."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opera.core.errors import StorageError

ADVICE = {
    errno.ENOSPC: "free some space and run the command again",
    errno.EDQUOT: "free some of your quota and run the command again",
    errno.EFBIG: (
        "a limit on the size of files is set (ulimit -f); raise it and run the command again"
    ),
    errno.EROFS: "choose another place",
    errno.EACCES: "change its permissions or choose another place",
    errno.EPERM: "change its permissions or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close other programs",
    errno.ENOMEM: "close other programs",
    errno.EIO: "check the disk",
}
"""What to do about an error of the operating system."""

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
"""Errors of reading that say nothing about the file: the machine is short of something, or fails.
"""

FAILED_WRITING = (
    "No space left",
    "os error 28",
    "os error 27",
    "File too large",
    "failed writing",
    "unexpected pos",
    "iostream error",
)
"""How libraries report a full disk without an error number: safetensors the first three, torch the
others."""


def storage_error(place: Path, error: OSError, note: str = "") -> StorageError:
    """Describe an error of the operating system, met while ``place`` was written; ``note`` says
    what the place is.
    """
    where = f"{error.filename or place}{note}: cannot be written"
    if error.errno is None and any(
        words in str(error) for words in (*FAILED_WRITING, "requested and")
    ):
        return _full(where)  # numpy counts the bytes requested and written
    return StorageError(f"{where}: {_reason(error)}")


def exhausted(place: Path, error: OSError) -> StorageError | None:
    """Describe an error met while ``place`` was read, if the machine is the cause and not the file;
    else ``None``.
    """
    if error.errno not in EXHAUSTED:
        return None
    return StorageError(f"{error.filename or place}: cannot be read: {_reason(error)}")


def _reason(error: OSError) -> str:
    reason = os.strerror(error.errno).lower() if error.errno else str(error) or type(error).__name__
    return f"{reason}; {ADVICE[error.errno]}" if error.errno in ADVICE else reason


def _full(where: str) -> StorageError:
    """Describe a failure that a library reports without a number: the disk is full, or a limit on
    files is reached.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return StorageError(f"{where}: {_reason(OSError(errno.ENOSPC, ''))}")
    return StorageError(
        f"{where}: no space left on device, or more than the {limit:,} bytes that a file may "
        "have here (ulimit -f); free some space or raise the limit, and run the command again"
    )


def _concerns(error: OSError, place: Path) -> bool:
    """Whether an error is one of writing ``place`` or what is in it."""
    if error.filename is None:
        return (
            error.errno is None or error.errno in ADVICE
        )  # a lost connection is no fault of the disk
    return Path(os.fsdecode(error.filename)).is_relative_to(place)


@contextmanager
def writing(place: Path, note: str = "", final: Path | None = None) -> Iterator[None]:
    """Turn a failure to write ``place``, or something in it, into one sentence.

    An error that names a file elsewhere passes: the block was reading that one. The sentence names
    ``final``, if it is given: what is written may have a temporary name.

    Raises:
        StorageError: naming the place, the reason and what to do.
    """
    try:
        yield
    except OSError as error:
        if not _concerns(error, place):
            raise
        if (
            final is not None and error.filename is not None
        ):  # without one, setting it would change what str() says
            error.filename = None
        raise storage_error(final or place, error, note) from error
    except Exception as error:
        if not any(words in str(error) for words in FAILED_WRITING):
            raise
        raise storage_error(final or place, OSError(str(error)), note) from error
