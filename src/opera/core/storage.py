"""Report disk errors in one sentence instead of a traceback."""

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
"""Advice for errors about space."""


def storage_error(place: Path, error: Exception, note: str = "") -> StorageError:
    """Describe an error of writing ``place``; ``note`` says what the place is."""
    path = getattr(error, "filename", None) or place
    reason = str(getattr(error, "strerror", None) or error).lower()
    advice = ADVICE.get(getattr(error, "errno", None) or 0)
    return StorageError(
        f"{path}{note}: cannot be written: {reason}{f'; {advice}' if advice else ''}"
    )


@contextmanager
def writing(place: Path, note: str = "", final: Path | None = None) -> Iterator[None]:
    """Turn an error of writing ``place``, or a file in it, into one sentence.

    An error about a file elsewhere passes, because the block was reading that file. The sentence
    has the name ``final`` if it is given, since ``place`` may be temporary.

    Raises:
        StorageError: with the place, the reason and advice.
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
