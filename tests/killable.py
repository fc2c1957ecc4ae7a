"""Commands that meet a fault at a chosen change of their folders, for tests and the chaos study."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from processes import Child, start
from small_runs import train_command

NEVER = 10**9
SCRIPT = Path(__file__).with_name("under_fault.py")


def under_fault(
    command: Sequence[str],
    log: Path,
    watched: Sequence[Path],
    fault: str = "none",
    at: int = NEVER,
    **environment: str,
) -> Child:
    """Start ``opera command`` under one of the faults of ``under_fault.py``, at the n-th change of some folders.

    What happens between two changes dies with the process, so other moments are no different.
    """
    folders = os.pathsep.join(map(str, watched))
    return start([str(SCRIPT), fault, str(at), folders, *command], log, **environment)


def changes(log: Path) -> int:
    """How many changes a process has made that has ended, or its worker."""
    return max(map(int, re.findall(r"^(\d+) changes$", log.read_text(), re.MULTILINE)))


@dataclass(frozen=True)
class Killable:
    """A short run of the command, which can be killed at its n-th change of the run folder."""

    beir: Path
    model: Path
    out: Path
    options: tuple[str, ...]

    def run(self, killed_at: int = NEVER) -> Child:
        """Start it, or resume it where it was started, and wait for its end."""
        resume = ["--resume"] if (self.out / "run.json").exists() else []
        command = train_command(self.beir, self.model, self.out, *self.options, *resume)
        child = under_fault(command, self.out.with_name("log"), [self.out], "kill", killed_at)
        assert child.wait() in (0, -signal.SIGKILL), child.log.read_text()
        return child
