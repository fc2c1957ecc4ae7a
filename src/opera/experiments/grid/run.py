"""Run the cells of a grid, each in a process of its own, one or several at a time.

A process of its own takes no other cell with it when it dies, and gives all its memory back. The
job is a line of JSON on its standard input, which stays open: when it closes, the parent is gone
and the process ends. How the job went is JSON on its standard output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opera.core.environment import threads_are_given, usable_cores
from opera.core.processes import signals_as_interrupt
from opera.core.terminal import say
from opera.experiments.analysis import PRIMARY
from opera.experiments.grid.plan import Cell
from opera.runs.folder import Run

WAIT_SECONDS = 0.25
LOG_LINES = 3
"""How many lines of a failed cell's log are shown."""

Message = dict[str, Any]
"""``{}``, or ``{"failed": reason}``."""


@dataclass
class Status:
    """The cells of a grid in the order they run, and what became of them, by folder."""

    cells: Sequence[Cell]
    jobs: int = 1
    done: set[Path] = field(default_factory=set)
    failed: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def scan(cls, cells: Sequence[Cell], jobs: int = 1) -> Status:
        """Look which cells are finished; a run that cannot be read raises RunFolderError."""
        return cls(cells, jobs, {cell.folder for cell in cells if cell.finished})

    def plan(self) -> dict[str, Any]:
        """What the grid will run, for JSON."""
        cells = [
            {
                "data": cell.data,
                "method": cell.label,
                "steps": cell.steps,
                "seed": cell.seed,
                "run": str(cell.folder),
                "finished": cell.folder in self.done,
            }
            for cell in self.cells
        ]
        return {"cells": cells, "jobs": self.jobs}

    @property
    def waiting(self) -> list[Cell]:
        """The cells that are not done and have not failed."""
        return [cell for cell in self.cells if cell.folder not in self.done | self.failed.keys()]


class Processes:
    """Processes that run a job each, and can be stopped together.

    ``at_once`` of them share the CPU's cores, unless ``OMP_NUM_THREADS`` is set; one alone takes
    them all.
    """

    command: tuple[str, ...] = (sys.executable, "-m", "opera.experiments.grid.cell")

    def __init__(self, at_once: int) -> None:
        # python -m would import what the current folder holds
        self._environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        if at_once > 1 and not threads_are_given():
            self._environment["OMP_NUM_THREADS"] = str(max(1, usable_cores() // at_once))
        self._started: list[subprocess.Popen[str]] = []
        self._lock, self._stopping = threading.Lock(), False

    def run(self, job: Mapping[str, Any], log: Path) -> Message:
        """Run a job whose output is appended to ``log``, and wait for its end."""
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as output, self._lock:
                if self._stopping:
                    return {"failed": "stopped"}
                process = subprocess.Popen(
                    list(self.command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    text=True,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C reaches the parent alone
                )
                self._started.append(process)
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError), process:  # it may be dead already
                print(json.dumps(job), file=process.stdin, flush=True)
                if told := process.stdout.read():
                    return dict(json.loads(told))
        except (OSError, ValueError) as error:  # one that cannot start must not end the others
            return {"failed": f"{type(error).__name__}: {error}"}
        return {"failed": _how_it_ended(process.wait())}

    def stop(self, number: signal.Signals) -> None:
        """Send a signal to all; on SIGTERM a training saves a checkpoint. None starts any more."""
        with self._lock:
            self._stopping = True
            for process in self._started:
                process.send_signal(number)


def _how_it_ended(status: int) -> str:
    """Say why a process ended without a word."""
    if status == -signal.SIGKILL:
        return "its process was killed, as happens when memory runs out"
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return f"its process ended with {how}"


def run_grid(status: Status, model: str) -> None:
    """Run the cells that are not finished, and print a line as each ends; keeps the status.

    A cell that was interrupted resumes from its checkpoint. Embeddings and rankings by the
    base model are kept in the cache, so that cells share them. One that fails is recorded, and
    the rest go on. Ctrl-C or SIGTERM stops them, waits until they have saved, and is raised; a
    second Ctrl-C kills them.
    """
    cells, started = status.waiting, time.monotonic()
    if not cells:
        return
    at_once = min(status.jobs, len(cells))
    words = f"{len(cells)} of {len(status.cells)} cells to run, {at_once} at a time"
    say(f"{words}; the log of the first is {cells[0].log}", file=sys.stderr)

    def ended(cell: Cell, message: Message) -> None:
        if "failed" in message:
            status.failed[cell.folder] = message["failed"]
            say(_failure(cell, message["failed"]), file=sys.stderr)
            return
        status.done.add(cell.folder)
        value = Run.open(cell.folder).measures["final"][PRIMARY]
        # by steps where cells have them
        done = sum(cell.steps or 1 for cell in cells if cell.folder in status.done)
        left = (time.monotonic() - started) * sum(c.steps or 1 for c in status.waiting) / done
        about = f", about {format_duration(left)} left" if left else ""
        state = f"{len(status.done)} of {len(status.cells)} cells done{about}"
        say(f"done: {cell.title}: {PRIMARY} {value:.4f}; {state}", file=sys.stderr)

    processes = Processes(at_once)
    with ThreadPoolExecutor(at_once) as pool, signals_as_interrupt():
        futures = {
            pool.submit(processes.run, _job_of(cell, model), cell.log): number
            for number, cell in enumerate(cells)
        }
        try:
            waiting = set(futures)
            while waiting:  # a signal that comes just before a wait does not end it
                done, waiting = wait(waiting, WAIT_SECONDS, FIRST_COMPLETED)
                for future in sorted(done, key=futures.__getitem__):  # in the order they started
                    ended(cells[futures[future]], future.result())
        except BaseException:
            processes.stop(signal.SIGTERM)
            try:
                while wait(futures, WAIT_SECONDS).not_done:
                    pass
            except KeyboardInterrupt:
                processes.stop(signal.SIGKILL)
            raise


def _job_of(cell: Cell, model: str) -> dict[str, Any]:
    """What a cell's process is told."""
    settings = {"model": model, "values": dict(cell.values)}
    return {"data": cell.data, "out": str(cell.folder), **settings}


def _failure(cell: Cell, reason: str) -> str:
    """The line of a failed cell, and the end of its log unless that is the reason."""
    text = cell.log.read_text(encoding="utf-8", errors="replace") if cell.log.is_file() else ""
    tail = "\n".join(text.strip().splitlines()[-LOG_LINES:])
    details = "" if reason in tail or not tail else f"\n{tail}"
    return f"failed: {cell.title}: {reason}{details}\n  full log: {cell.log}"


def format_duration(seconds: float) -> str:
    """Format a duration: ``40 s``, ``14 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
