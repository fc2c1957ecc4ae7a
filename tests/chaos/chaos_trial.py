"""A trial of the chaos study: a command in a folder of its own, and the record of what happened to it."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

from chaos_commands import Command, Outcome, World, environment, files_in

from killable import NEVER, under_fault
from processes import Child

KILLED, STOPPED = -signal.SIGKILL, 130


@dataclass
class Row:
    """A trial as recorded.

    Attributes:
        trial: its name.
        command: the command.
        fault: what happened to it.
        kills: how often it was killed.
        points: where each fault struck: the phase, or the file that was about to change.
        statuses: exit statuses, the finishing call's last.
        equal: whether the end equals the undisturbed one.
        left: files that the undisturbed command has not.
        traceback: whether any call ended in a traceback.
        seconds: of the trial.
        last: last line of the first call that went wrong, if one did.
    """

    trial: str
    command: str
    fault: str
    kills: int = 0
    points: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    equal: bool = False
    left: list[str] = field(default_factory=list)
    traceback: bool = False
    seconds: float = 0.0
    last: str = ""


@dataclass(frozen=True)
class Whole:
    """A command that nobody disturbed: its end, its files, its changes, how long it took."""

    outcome: Outcome
    files: frozenset[str]
    cached: frozenset[str]
    changes: int
    worker_changes: int
    seconds: float


class Trial:
    """A command in a folder of its own, and the record of what happened to it."""

    def __init__(self, name: str, command: Command, fault: str, world: World, whole: Whole | None, home: Path) -> None:
        self.row, self.command, self.world, self.whole = Row(name, command.name, fault), command, world, whole
        self.home, self.out, self.cache = home, home / "out" / command.file, home / "cache"
        self.rng, self._calls = random.Random(name), 0
        for folder in (self.out.parent, self.cache):
            folder.mkdir(parents=True, exist_ok=True)

    def start(self, fault: str = "none", at: int = NEVER, out: Path | None = None, **more: str) -> Child:
        """Start the command, or what finishes it."""
        self._calls += 1
        words = self.command.arguments(self.world, out or self.out)
        log = self.home / f"log{self._calls}"
        return under_fault(words, log, [self.out.parent, self.cache], fault, at, **environment(self.cache, **more))

    def end(self, child: Child) -> int:
        """Wait for a process, and record how it ended."""
        status, text = child.wait(), child.log.read_text(errors="replace")
        row = self.row
        row.statuses.append(status)
        row.kills += (status == KILLED) + text.count("its process was killed")  # of a grid's workers
        if status in (KILLED, STOPPED) or "struck at" in text:
            row.points.append(self._point(text))
        if "Traceback" in text and not row.traceback:
            row.traceback, row.last = True, last_line(text)
        return status

    def run(self, fault: str = "none", at: int = NEVER, **more: str) -> int:
        """Run the command to its end."""
        return self.end(self.start(fault, at, **more))

    def finish(self) -> Row:
        """Let the same command finish, and compare."""
        assert self.whole is not None
        status = self.run()
        row = self.row
        if status == 0:
            self.compare(self.out)
        else:
            row.last = row.last or last_line((self.home / f"log{self._calls}").read_text(errors="replace"))
        return row

    def compare(self, out: Path) -> None:
        """Compare an end with the undisturbed one."""
        assert self.whole is not None
        row, found = self.row, self.command.outcome(out)
        row.equal = found == self.whole.outcome
        if not row.equal:
            names = {
                name for name in found.keys() | self.whole.outcome if found.get(name) != self.whole.outcome.get(name)
            }
            row.last = row.last or f"differs: {', '.join(sorted(names))}"
        new = {f"cache/{name}" for name in files_in(self.cache) - self.whole.cached}
        row.left = sorted(new | (files_in(out.parent) - self.whole.files if out == self.out else set()))

    def _point(self, text: str) -> str:
        """Where a fault struck: the file that was about to change, or what the log says last."""
        struck = [line.removeprefix("struck at ") for line in text.splitlines() if line.startswith("struck at ")]
        if struck:
            place = Path(struck[-1])
            folder = place.relative_to(self.home).parent
            return f"{folder}/{'.'.join(place.name.strip('.').split('.')[:2])[:30]}"
        said = [line.rsplit(" (", 1)[0] for line in text.splitlines() if line.endswith("so far)")]
        return said[-1] if said else "start"


def last_line(text: str) -> str:
    """The last line that a process printed, without the count of its changes."""
    lines = [line for line in text.splitlines() if line.strip() and not line.endswith(" changes")]
    return lines[-1][:300] if lines else ""
