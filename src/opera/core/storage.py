"""What goes wrong with a disk, in one sentence instead of a traceback."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from opera.core.errors import StorageError

ADVICE = {
    errno.ENOSPC: "free some space and run the command again",
    errno.EDQUOT: "free some of your quota and run the command again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) and run the command again",
}
"""What to do if there is no room for a file."""


def storage_error(place: Path, error: Exception, note: str = "") -> StorageError:
    """Describe an error met while ``place`` was written; ``note`` says what the place is."""
    where = getattr(error, "filename", None) or place
    reason = str(getattr(error, "strerror", None) or error).lower()
    advice = ADVICE.get(getattr(error, "errno", None) or 0)
    return StorageError(
        f"{where}{note}: cannot be written: {reason}{f'; {advice}' if advice else ''}"
    )


@contextmanager
def writing(place: Path, note: str = "", final: Path | None = None) -> Iterator[None]:
    """Turn a failure to write ``place``, or something in it, into one sentence.

    An error that names a file elsewhere passes: the block was reading that file. The sentence
    names ``final`` if it is given, since ``place`` may be a temporary name.

    Raises:
        StorageError: naming the place, the reason and what to do.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        filename = getattr(error, "filename", None)
        if filename is not None and not Path(os.fsdecode(filename)).is_relative_to(place):
            raise
        if filename is not None and final is not None:
            error.filename = None  # type: ignore[union-attr]
        raise storage_error(final or place, error, note) from error
