"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Opera = Callable[..., Done]

QUICK = ["--steps", 8, "--batch-size", 8, "--lr", 0.05, "--set", "temperature=0.1", "--set", "save_steps=8"]
"""Options of a short training."""
