"""Signals that should stop a grid as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Raise a single KeyboardInterrupt on SIGTERM or SIGHUP.

    These are often sent twice, and a second Ctrl-C kills the workers, so repeated ones are ignored. A signal that is
    ignored already, as under nohup, stays ignored. Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers = {
        number: handler
        for number, handler in handlers.items()
        if handler not in (signal.SIG_IGN, None)
    }

    def interrupt(number: int, frame: Any) -> None:
        for other in handlers:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in handlers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
