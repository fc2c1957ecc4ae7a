"""Progress where standard error is no terminal: lines in the log, not too often."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

import opera
from opera.core import progress as module
from opera.core.progress import ProgressLines, counted, duration, progress
from small_runs import SMALL


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that progress sees, a list of one."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="opera")
    return caplog


def test_a_line_says_what_is_done_and_what_is_left(clock: list[float], lines: pytest.LogCaptureFixture) -> None:
    with progress("training", 500, "steps", initial=20) as bar:
        bar.set_postfix({"loss": "0.430"})
        clock[0] += 10
        bar.update(60)
    assert lines.messages == ["training: 80 of 500 steps, loss 0.430, 70 s left"]


def test_lines_come_at_most_every_few_seconds(clock: list[float], lines: pytest.LogCaptureFixture) -> None:
    for _ in counted(range(100), "searching", 100, "parts"):
        clock[0] += 1
    assert [line.split(",")[0] for line in lines.messages] == [f"searching: {n} of 100 parts" for n in range(5, 101, 5)]


def test_bytes_and_unknown_totals(clock: list[float], lines: pytest.LogCaptureFixture) -> None:
    for total, unit in ((40_000_000, "B"), (None, "documents")):
        with progress("reading", total, unit) as bar:
            clock[0] += 6
            bar.update(10_000_000)
    assert lines.messages == ["reading: 10.0 MB of 40.0 MB, 18 s left", "reading: 10,000,000 documents"]


def test_a_terminal_shows_a_bar_and_hidden_ones_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress("x", 1, "steps"), ProgressLines)
    hidden = progress("x", 1, "steps", hidden=True)
    assert not isinstance(hidden, ProgressLines)
    assert hidden.disable
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress("x", 1, "steps") as bar:
        assert not isinstance(bar, ProgressLines)


@pytest.mark.parametrize(("seconds", "text"), [(3.2, "3 s"), (140, "2 min"), (11_000, "3.1 h")])
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_run_reports_training_and_encoding(
    monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN", 0.0)
    opera.adapt(beir, model=static_model, out=tmp_path / "run", **{**SMALL, "max_steps": 4, "guard": False})
    assert any(line.startswith("training: 4 of 4 steps") for line in lines.messages)
    assert any(line.startswith("encoding documents: 120 of 120 documents") for line in lines.messages)
