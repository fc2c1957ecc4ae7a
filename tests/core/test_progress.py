"""Progress off a terminal: lines in the log."""

from __future__ import annotations

import logging
import re

import pytest

from opera.core import progress as module
from opera.core.progress import progress


def test_a_log_gets_lines_of_what_is_done_and_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN", 0.0)
    caplog.set_level(logging.INFO, logger="opera")
    with progress("training", 500, "steps", initial=20) as bar:
        bar.set_postfix({"loss": "0.430"}, refresh=False)
        bar.update(60)
    assert re.fullmatch(r"training: 80 of 500 steps, .* steps/s, loss=0.430, [\d:]+ left", caplog.messages[-1])
