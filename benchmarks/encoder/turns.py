"""Processes that take turns: each does a piece of work, says how long it took, and waits to be called again.

So libraries of different environments alternate within one run, step by step, each in a process of its own, whose peak
of memory is its own. This module needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


class Turns:
    """The side of a worker. What libraries print goes to its log; lines of JSON go to the process that started it."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._began = time.perf_counter()

    def ready(self, **facts: Any) -> None:
        """Say that everything is loaded, with the seconds it took, and wait for the first turn.

        The peak of the memory counts from here: what loading took for a moment is not of the work.
        """
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._tell({"load_seconds": time.perf_counter() - self._began, "loaded_mb": memory("VmRSS"), **facts})
        self._wait()

    def done(self, **facts: Any) -> None:
        """End a turn, and wait for the next; where there is none, the process ends here."""
        seconds = time.perf_counter() - self._start
        self._tell({"seconds": seconds, "peak_mb": memory("VmHWM"), **facts})
        self._wait()

    def _tell(self, facts: dict[str, Any]) -> None:
        print(json.dumps(facts), file=self._out, flush=True)

    def _wait(self) -> None:
        if not sys.stdin.readline():
            os._exit(0)  # in the middle of a training, whose end is nobody's concern
        self._start = time.perf_counter()


class Worker:
    """The other side: a started process.

    Args:
        command: the program; the job is its last argument.
        job: what to do, as JSON.
        log: file for what it prints.
        environment: variables beside those of this process.
    """

    def __init__(
        self, command: Sequence[str | Path], job: dict[str, Any], log: Path, environment: dict[str, str]
    ) -> None:
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
            )
        self.facts = self._read()

    def turn(self) -> dict[str, Any]:
        """Let it work once; return what it says."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RuntimeError(f"{self._log}: {(self._log.read_text().strip().splitlines() or ['no word'])[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def memory(name: str) -> float:
    """Return a line of this process's ``/proc/self/status`` in MB; ``VmHWM`` is the peak of its resident memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"no {name}")


def job() -> dict[str, Any]:
    """Read the job that this worker was started with."""
    read: dict[str, Any] = json.loads(sys.argv[1])
    return read
