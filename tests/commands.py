"""What tests of commands share."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from opera.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Opera = Callable[..., Done]

QUICK = ["--steps", 8, "--batch-size", 8, "--lr", 0.05, "--set", "temperature=0.1", "--set", "save_steps=8"]
"""Options of a short training."""


def opera_here(
    folder: Path,
    arguments: Sequence[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str = "opera",
    main: Callable[[], None] = main,
) -> Done:
    """Run ``opera ARGUMENTS`` in a folder and in this process; a process of its own takes seconds to start."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
    capsys.readouterr()
    try:
        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    captured = capsys.readouterr()
    return Done(status, captured.out, captured.err)
