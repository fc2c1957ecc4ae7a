"""A clock that tests set, sham workers, which load nothing, and ``opera compare`` in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from opera.cli import main
from opera.experiments.grid import status, worker_process
from opera.experiments.grid.worker_process import WorkerProcess

SHAM_WORKER = """
import json, os, signal, sys, time
from pathlib import Path

def send(**message):
    print(json.dumps(message), flush=True)

def save(number, frame):
    folder = Path(job["out"])
    folder.with_name("saving").touch()
    while seed == 5 and not folder.with_name("go-on").exists():
        time.sleep(0.01)
    folder.mkdir()
    send(stopped=True)
    sys.exit()

for line in iter(sys.stdin.readline, ""):
    job = json.loads(line)
    seed = job["values"]["seed"]
    if seed in (5, 6): signal.signal(signal.SIGTERM, save)
    Path(job["out"]).with_name("started").touch()
    if seed == 1: os.kill(os.getpid(), signal.SIGKILL)
    if seed == 2: send(stopped=True); sys.exit()
    if seed == 3: sys.exit(5)
    if seed == 4: send(failed="no luck"); continue
    while seed in (5, 6): signal.pause()
    send(done=True)
"""
"""Ends as the job's seed says. With seeds 5 and 6 it runs until SIGTERM, and then saves: it makes the cell's folder,
with seed 5 not before the test has put a file ``go-on`` beside it."""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The monotonic clock of a grid's status; a test moves ``now``."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def sham_workers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Let every worker be a sham one; the processes that were started."""
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(popen(command, **options))
        return started[-1]

    monkeypatch.setattr(WorkerProcess, "command", (sys.executable, "-c", SHAM_WORKER))
    monkeypatch.setattr(worker_process.subprocess, "Popen", start)
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
