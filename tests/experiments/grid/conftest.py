"""Sham cells, which load nothing, and ``opera compare`` in this process."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from commands import Done
from opera.experiments import grid
from opera.experiments.grid import Processes

SHAM_CELL = """
import json, signal, sys, time
from pathlib import Path

def save(number, frame):
    folder.with_name("saving").touch()
    while not folder.with_name("go-on").exists():
        time.sleep(0.01)
    folder.mkdir()
    sys.exit()

folder = Path(json.loads(sys.stdin.readline())["out"])
signal.signal(signal.SIGTERM, save)
folder.with_name("started").touch()
while True: signal.pause()
"""
"""Runs until SIGTERM, and then saves: it makes the cell's folder once the test has put a file ``go-on`` beside it."""

Call = Callable[..., Done]


@pytest.fixture
def sham_cells(monkeypatch) -> list[subprocess.Popen[str]]:
    """Let every cell be a sham one; the processes that were started."""
    started = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(popen(command, **options))
        return started[-1]

    monkeypatch.setattr(Processes, "command", (sys.executable, "-c", SHAM_CELL))
    monkeypatch.setattr(grid.subprocess, "Popen", start)
    return started


@pytest.fixture
def compare(run_opera) -> Call:
    """``opera compare`` in this process."""
    return lambda *arguments, **expected: run_opera("compare", *arguments, **expected)
