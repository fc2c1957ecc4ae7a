"""The command of the reproduction, run in this process."""

import pytest

from commands import Opera, opera_here
from opera_paper.cli import main


@pytest.fixture
def run_opera_paper(tmp_path, monkeypatch, capsys) -> Opera:
    """``run_opera_paper("table")``: run ``opera-paper table`` in an empty folder."""
    return lambda *arguments: opera_here(tmp_path, arguments, monkeypatch, capsys, "opera-paper", main)
