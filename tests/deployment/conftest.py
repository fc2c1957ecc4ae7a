"""The command line run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Opera, opera_here


@pytest.fixture
def run_opera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Opera:
    """``run_opera("export", ...)``: run ``opera export ...`` in an empty folder."""
    return lambda *arguments: opera_here(tmp_path, arguments, monkeypatch, capsys)
