"""The parent's side of a worker: starts the process, sends it jobs and reads its messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
"""How a job ended: ``{"done": true}``, ``{"failed": reason}``, with ``"input": true`` where the input is to blame,
``{"stopped": true}`` or ``{"timing": {...}}``."""


class WorkerLostError(Exception):
    """A worker's process ended without a message."""


class WorkerProcess:
    """A process that runs jobs, one after another. It is started with its first job.

    Args:
        threads: number of threads to compute with, unless ``OMP_NUM_THREADS`` is set; ``None`` leaves the default.
    """

    command: tuple[str, ...] = (sys.executable, "-m", "opera.experiments.grid.worker")

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._terminated = threading.Lock(), False

    def run_job(self, job: Mapping[str, Any]) -> Message:
        """Send a job, and wait for the message that says how it ended.

        Raises:
            WorkerLostError: if the process ends without one.
        """
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise WorkerLostError(self._exit_reason(process)) from None
        line = process.stdout.readline()
        if not line:
            raise WorkerLostError(self._exit_reason(process))
        message: Message = json.loads(line)
        if message.get("stopped"):  # it was terminated and takes no more jobs
            self.close()
        return message

    def terminate(self) -> None:
        """Send SIGTERM, on which a training saves a checkpoint. From now on no process is started."""
        with self._lock:
            self._terminated = True
            if self._process is not None:
                self._process.terminate()

    def close(self, kill: bool = False) -> None:
        """Close the process's input, so that it ends after its job, and wait for it.

        Args:
            kill: end it at once.
        """
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        process.wait()

    def _start(self) -> subprocess.Popen[str]:
        """Return the running process, started if need be."""
        environment = {
            **os.environ,
            "PYTHONSAFEPATH": "1",
        }  # python -m would import what the current folder holds
        if self._threads is not None:
            environment.setdefault("OMP_NUM_THREADS", str(self._threads))
        with self._lock:
            if self._terminated:
                raise WorkerLostError("stopped")
            if self._process is None:
                self._process = subprocess.Popen(
                    list(self.command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    start_new_session=True,  # Ctrl-C reaches the parent only, which then terminates its workers
                )
            return self._process

    def _exit_reason(self, process: subprocess.Popen[str]) -> str:
        """Wait for a process that is ending, and say why it ended."""
        status = process.wait()
        self.close()
        if status == -signal.SIGKILL:
            return "its process was killed, as happens when memory runs out"
        if status < 0:
            return f"its process ended with {signal.Signals(-status).name}"
        return f"its process ended with exit status {status}"


def make_workers(count: int) -> list[WorkerProcess]:
    """Make workers that share the CPU's cores; one alone takes them all."""
    threads = max(1, (os.cpu_count() or 1) // count) if count > 1 else None
    return [WorkerProcess(threads) for _ in range(count)]
