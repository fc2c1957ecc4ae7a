"""The command line run in this process; a process of its own takes seconds to start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import opera
from commands import Done, Opera
from opera.cli import main
from opera.runs.folder import Run


@pytest.fixture
def run_opera(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Opera:
    """``run_opera("train", ...)``: run ``opera train ...`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["opera", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return Done(status, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, beir: Path, static_model: Path) -> Run:
    out = tmp_path_factory.mktemp("cli") / "run"
    return opera.adapt(beir, model=static_model, out=out, method="sp", k=0.5, max_steps=8, save_steps=8)
