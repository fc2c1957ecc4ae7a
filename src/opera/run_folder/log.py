"""``run.log``: all messages of a run, with details that the screen does not show."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opera.core.terminal import log


class _ToParents(logging.Handler):
    """Passes the records to the root logger, which would get them without the file."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger().callHandlers(record)


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Add all messages of the block to a file. The screen shows the same as without it."""
    file, screen = logging.FileHandler(path, encoding="utf-8", delay=True), _ToParents()
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level, propagates = log.level, log.propagate
    screen.setLevel(log.getEffectiveLevel() if propagates else logging.CRITICAL + 1)
    log.addHandler(file)
    log.addHandler(screen)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(file)
        log.removeHandler(screen)
        log.setLevel(level)
        log.propagate = propagates
        file.close()
