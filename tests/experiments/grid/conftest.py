"""Sham cells, which load nothing, and ``opera compare`` in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from opera.cli import main
from opera.experiments.grid import run
from opera.experiments.grid.run import Processes

SHAM_CELL = """
import json, os, signal, sys, time
from pathlib import Path

def save(number, frame):
    folder = Path(job["out"])
    folder.with_name("saving").touch()
    while seed == 5 and not folder.with_name("go-on").exists():
        time.sleep(0.01)
    folder.mkdir()
    sys.exit()

job = json.loads(sys.stdin.readline())
seed = job["values"]["seed"]
if seed in (5, 6): signal.signal(signal.SIGTERM, save)
Path(job["out"]).with_name("started").touch()
if seed == 1: os.kill(os.getpid(), signal.SIGKILL)
if seed == 3: sys.exit(5)
while seed in (5, 6): signal.pause()
print(json.dumps({"failed": "no luck"} if seed == 4 else {}))
"""
"""Ends as the job's seed says. With seeds 5 and 6 it runs until SIGTERM, and then saves: it makes the cell's folder,
with seed 5 not before the test has put a file ``go-on`` beside it."""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sham_cells(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Let every cell be a sham one, whose measure is 0.5; the processes that were started."""
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(popen(command, **options))
        return started[-1]

    monkeypatch.setattr(Processes, "command", (sys.executable, "-c", SHAM_CELL))
    monkeypatch.setattr(run.subprocess, "Popen", start)
    monkeypatch.setattr(run.Run, "open", lambda path: SimpleNamespace(measures={"after": {"nDCG@10": 0.5}}))
    return started


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """``opera compare`` in this process: exit status, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "160")

    def compare(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["opera", "compare", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return compare
