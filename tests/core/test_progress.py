"""Progress: a bar on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import pytest

import opera
from opera.core import progress as module
from opera.core.progress import duration, progress
from small_runs import SMALL


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log, which gets a line each time that anything is counted."""
    monkeypatch.setattr(module, "SECONDS_BETWEEN", 0.0)
    caplog.set_level(logging.INFO, logger="opera")
    return caplog


def test_a_log_gets_lines_of_what_is_done_and_left(lines: pytest.LogCaptureFixture) -> None:
    with progress("training", 500, "steps", initial=20) as bar:
        bar.set_postfix({"loss": "0.430"}, refresh=False)
        bar.update(60)
    assert re.fullmatch(r"training: 80 of 500 steps, .* steps/s, loss=0.430, [\d:]+ left", lines.messages[-1])


def test_lines_come_half_a_minute_apart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="opera")
    with progress("training", 500, "steps") as bar:
        bar.update(60)
    assert caplog.messages == []


def test_a_terminal_shows_a_bar_and_hidden_ones_nothing(
    monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for hidden in (True, False):
        with progress("x", 2, "steps", hidden=hidden) as bar:
            bar.update(1)
            bar.refresh()
        assert ("x:  50%" in capsys.readouterr().err) is not hidden
    assert lines.messages == []


@pytest.mark.parametrize(("seconds", "text"), [(3.2, "3 s"), (140, "2 min"), (11_000, "3.1 h")])
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_run_reports_training_and_encoding(
    lines: pytest.LogCaptureFixture, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    opera.adapt(beir, model=static_model, out=tmp_path / "run", **{**SMALL, "max_steps": 4, "guard": False})
    for line in ("training: 4 of 4 steps", "encoding documents: 120 of 120 documents"):
        assert any(message.startswith(line) for message in lines.messages)
