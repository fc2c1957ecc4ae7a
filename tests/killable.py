"""Runs of the command that are killed at a chosen change of their folder, for tests of resuming."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from processes import Child, start
from small_runs import train_command

KILLED = """
import os, signal, sys

left, out, *arguments = sys.argv[1:]
left = int(left)


def kill(event, details):
    global left
    written = event == "open" and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if (written or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")) and str(details[0]).startswith(out):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(kill)
sys.argv = ["opera", *arguments]
from opera.cli import main

try:
    main()
finally:
    print(f"{10**9 - left} changes")
"""


@dataclass(frozen=True)
class Killable:
    """A short run of the command, which can be killed at its n-th change of the run folder.

    A change is a file opened for writing, renamed or removed, or a folder made or removed. What happens between two
    changes dies with the process, so other moments are no different.
    """

    beir: Path
    model: Path
    out: Path
    options: tuple[str, ...]

    def run(self, killed_at: int = 10**9) -> Child:
        """Start it, or resume it where it was started, and wait for its end."""
        script = self.out.with_name("killable.py")
        script.write_text(KILLED)
        resume = ["--resume"] if (self.out / "run.json").exists() else []
        command = train_command(self.beir, self.model, self.out, *self.options, *resume)
        child = start([str(script), str(killed_at), str(self.out), *command], self.out.with_name("log"))
        assert child.wait() in (0, -signal.SIGKILL), child.log.read_text()
        return child
