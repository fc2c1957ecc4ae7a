"""Processes for tests, forked off one that has imported torch and OPERA: each starts in moments, not in seconds."""

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self, TextIO

DEADLINE = 300.0
"""Seconds after which a test gives up waiting: far more than any machine needs, so that it fails at last."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["opera.cli", "opera.run.steps", "transformers.models.bert.modeling_bert"])


@dataclass
class Child:
    """A process that was started, and the file that holds its output."""

    process: multiprocessing.process.BaseProcess
    log: Path

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.exitcode is None

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        """Wait for its end; returns the exit status, negative for a signal."""
        self.process.join(DEADLINE)
        status = self.process.exitcode
        if status is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {DEADLINE:.0f} s:\n{self.log.read_text()}")
        return status

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for an event that this process causes; it fails if the process ends without it."""
        end = time.monotonic() + DEADLINE
        while not condition():
            if not self.running and not condition():
                raise AssertionError(f"ended first:\n{self.log.read_text()}")
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)


def start(arguments: list[str], log: Path, **environment: str) -> Child:
    """Start ``python arguments``: ``-m module ...`` or ``script ...``. Its output goes to ``log``."""
    log.touch()
    process = _context.Process(
        target=_run_logged, args=(arguments, str(log), {**os.environ, **environment}), daemon=False
    )
    process.start()
    return Child(process, log)


class ForkedWorker:
    """Stands in for ``subprocess.Popen`` of a grid's cell: the same pipe, signals and exit status.

    Attributes:
        context: how the process is made; a process that was forked itself takes ``fork``.
    """

    context: multiprocessing.context.BaseContext = _context

    def __init__(self, command: list[str], *, env: dict[str, str], stderr: TextIO, **options: object) -> None:
        theirs, ours = _context.Pipe(duplex=False)
        self._process = self.context.Process(
            target=_work, args=(command[1:], theirs, ours, stderr.name, env), daemon=False
        )
        self._process.start()
        self.stdin = os.fdopen(os.dup(ours.fileno()), "w")
        theirs.close()
        ours.close()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            assert self._process.pid is not None
            os.kill(self._process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.wait()


def launched(arguments: list[str], log: Path, processes: int = 2) -> list[Child]:
    """Start ``python arguments`` several times, each as torchrun would start it. Their output goes to ``log0``, ..."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    children = []
    for rank in range(processes):
        environment = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        children.append(start(arguments, log.with_name(f"{log.name}{rank}"), **environment))
    return children


def torchrun(arguments: list[str], log: Path, processes: int = 2) -> subprocess.Popen[bytes]:
    """Start ``torchrun arguments`` for real, which takes seconds. Its output goes to ``log``."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, *launcher, *arguments], stdout=file, stderr=file)


def _work(arguments: list[str], jobs: Connection, parents: Connection, log: str, environment: dict[str, str]) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    parents.close()  # else this process would keep its own input open
    os.dup2(jobs.fileno(), 0)
    jobs.close()
    sys.stdin = os.fdopen(0)
    status = 0
    try:
        _run(arguments, environment)
    except SystemExit as end:
        status = end.code
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # multiprocessing's own exit fails in a process that a thread has forked
    os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def _run_logged(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(file, number)
    _run(arguments, environment)


def _run(arguments: list[str], environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
