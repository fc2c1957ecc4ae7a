"""Progress where a bar cannot be drawn: lines in the log."""

import logging
import os
import re
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import pytest
from tqdm import tqdm

from opera.core import progress as module
from opera.core.progress import progress
from small_runs import train_command


def terminal(lines: int, columns: int) -> tuple[int, int]:
    """The two ends of a terminal with this size."""
    reader, writer = os.openpty()
    termios.tcsetwinsize(writer, (lines, columns))
    return reader, writer


@contextmanager
def stderr_on(ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Connect standard error to a file; the list holds its lines at the end."""
    reader, writer = ends
    parts = []

    def read() -> None:
        try:
            while part := os.read(reader, 4096):
                parts.append(part)
        except OSError:  # the end of a terminal
            pass

    thread, lines = threading.Thread(target=read), list[str]()
    with monkeypatch.context() as patch, os.fdopen(writer, "w") as file:
        patch.setattr("sys.stderr", file)
        patch.setattr(logging.root, "handlers", [])  # those of pytest; the command sets its own
        thread.start()
        yield lines
    thread.join()
    os.close(reader)
    lines += b"".join(parts).decode().replace("\r\n", "\n").split("\n")


@pytest.fixture(autouse=True)
def _fast_work_has_lines(monkeypatch) -> None:
    monkeypatch.setattr(module, "MIN_SECONDS_BETWEEN", 1e-9)


@pytest.mark.parametrize(
    "open_ends", [os.openpty, lambda: terminal(24, 0), lambda: terminal(0, 80), os.pipe], ids=["raw", "0", "80", "|"]
)
def test_without_room_for_a_bar_training_logs_a_line_per_5_percent(
    open_ends, run_opera, beir, static_model, monkeypatch
):
    with stderr_on(open_ends(), monkeypatch) as lines:
        run_opera(*train_command(beir, static_model, Path("run"), "--steps", "20", "--set", "guard=false"))
    shown = [re.fullmatch(r"training: (\d+) of 20 steps, .* steps/s, .*[\d:]+ left", line) for line in lines]
    assert [int(line[1]) for line in shown if line] == list(range(1, 21)), lines
    assert not any("\r" in line for line in lines)


def test_a_terminal_with_a_size_has_a_bar(monkeypatch):
    monkeypatch.setattr(tqdm, "_instances", WeakSet())  # trainers of other tests that failed left bars open
    with stderr_on(terminal(24, 80), monkeypatch) as lines, progress("training", 2, "steps") as bar:
        bar.update(1)
    assert re.search(r"\rtraining: +0%\|.*0/2 ", lines[0])


def test_a_log_gets_lines_of_what_is_done_and_left(caplog, monkeypatch):
    """Slow work has a line per half minute, and so has work without a known end."""
    clock = [1e9]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[-1])
    caplog.set_level(logging.INFO, logger="opera")
    bars = [progress("training", 500, "steps", initial=20), progress("reading", None, "rows")]
    for bar in bars:
        bar.set_postfix({"loss": "0.430"}, refresh=False)
    for seconds in (1, 19, 20, 20, 15):
        clock.append(clock[-1] + seconds)
        for bar in bars:
            bar.update(4)
    for bar in bars:
        bar.close()
    patterns = [
        r"training: 32 of 500 steps, .* steps/s, loss=0.430, [\d:]+ left",
        r"reading: 12 of \? rows, .* rows/s, loss=0.430",
        r"training: 40 of 500 steps, .*",
        r"reading: 20 of \? rows, .*",
    ]
    for pattern, message in zip(patterns, caplog.messages, strict=True):
        assert re.fullmatch(pattern, message)
