"""The command line run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

import opera
from commands import Opera, opera_here
from opera.runs.folder import Run


@pytest.fixture
def run_opera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Opera:
    """``run_opera("train", ...)``: run ``opera train ...`` in an empty folder."""
    return lambda *arguments: opera_here(tmp_path, arguments, monkeypatch, capsys)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    out = tmp_path_factory.mktemp("cli") / "run"
    return opera.adapt(beir, model=static_model, out=out, method="sp", k=0.5, max_steps=8, save_steps=8)
