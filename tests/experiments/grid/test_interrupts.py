"""Signals that stop a grid as Ctrl-C does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from opera.experiments.grid.interrupts import signals_as_interrupt

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers_are_restored() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_once(number: signal.Signals) -> None:
    caught = 0
    with pytest.raises(KeyboardInterrupt), signals_as_interrupt():  # noqa: PT012
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            caught += 1
            for repeated in SIGNALS:  # ignored, so that saving is not broken off
                os.kill(os.getpid(), repeated)
            raise
    assert caught == 1


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_interrupt():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_than_the_main_one_changes_no_handler() -> None:
    inside: list[object] = []

    def run() -> None:
        with signals_as_interrupt():
            inside.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert inside == [signal.getsignal(number) for number in SIGNALS]
