"""Progress: a bar on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import logging
import re
import sys

import pytest

from opera.core import progress as module
from opera.core.progress import progress


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
