"""Runs the cells of a grid in processes of their own, as many at once as asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from opera.core.errors import TrainingError
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.status import Rate, Running, Status

LOOK_SECONDS = 0.25
Changed = Callable[[Status, Cell | None], None]


class WorkerLostError(Exception):
    """A worker ended without a word."""


class Worker:
    """A process that does jobs, started when it gets its first."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._stopping = threading.Lock(), False

    def do(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Give it a job; yields its news, of which the last is how the job ended.

        Raises:
            WorkerLostError: if the process ends without saying so.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise WorkerLostError(self._epitaph(process)) from None
        for line in process.stdout:
            news = json.loads(line)
            if news.get("stopped"):  # it was asked to stop, and does no more jobs
                self.close()
            yield news
            if "step" not in news:
                return
        raise WorkerLostError(self._epitaph(process))

    def ask_to_stop(self) -> None:
        """Send SIGTERM: a training saves a checkpoint first; no process is started any more."""
        with self._lock:
            self._stopping = True
            if self._process is not None:
                self._process.terminate()

    def close(self, kill: bool = False) -> None:
        """Let it end: it has no more jobs."""
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

    def _started(self) -> subprocess.Popen[str]:
        environment = dict(os.environ)
        if self._threads is not None:
            environment.setdefault("OMP_NUM_THREADS", str(self._threads))
        with self._lock:
            if self._stopping:
                raise WorkerLostError("stopped")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "opera.experiments.grid.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    start_new_session=True,  # Ctrl-C goes to this process alone, which tells the workers
                )
            return self._process

    def _epitaph(self, process: subprocess.Popen[str]) -> str:
        status = process.wait()
        self.close()
        if status == -signal.SIGKILL:
            return "its process was killed, as happens when memory runs out"
        if status < 0:
            return f"its process ended with {signal.Signals(-status).name}"
        return f"its process ended with exit status {status}"


def run_grid(status: Status, model: str, changed: Changed = lambda status, cell: None) -> None:
    """Run the cells that are not finished; one that fails is noted in the status and the rest go on.

    A cell that was cut off goes on from its checkpoint. Vectors and rankings by the pretrained model are kept in
    the cache, so that cells share them.

    Args:
        status: the cells, and how many to run at once; kept up to date.
        model: the model that all start from.
        changed: told several times a second, and with the cell that ended when one has.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the cells that ran have saved a checkpoint.
    """
    cells, lock = iter(status.waiting), threading.Lock()
    ended: list[Cell] = []
    stop = threading.Event()
    workers = _workers(status)

    def work(worker: Worker) -> None:
        while not stop.is_set():
            with lock:
                cell = next(cells, None)
                if cell is None:
                    break
                status.running[cell.place] = Running(time.monotonic())
            failure = _run_cell(worker, cell, model, status.running[cell.place])
            with lock:
                del status.running[cell.place]
                if failure is None:
                    status.done.add(cell.place)
                elif not stop.is_set():
                    status.failed[cell.place] = failure
                ended.append(cell)
        worker.close()

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    with _ends_like_ctrl_c():
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                _tell(status, ended, lock, changed)
                time.sleep(LOOK_SECONDS)
        except BaseException:  # Ctrl-C, or what shows the status fails
            try:
                stop.set()
                for worker in workers:
                    worker.ask_to_stop()
                for thread in (thread for thread in threads if thread.is_alive()):
                    thread.join()
            except KeyboardInterrupt:
                for worker in workers:
                    worker.close(kill=True)
            raise
    _tell(status, ended, lock, changed)


def time_grid(status: Status, model: str) -> None:
    """Time a few steps on each data set of which no cell is finished, and note the rates in the status.

    Raises:
        TrainingError: if these steps fail.
    """
    for source in dict.fromkeys(cell.data for cell in status.waiting):
        cell = next(cell for cell in status.cells if cell.data == source)
        if any(other.place in status.done for other in status.cells if other.data == source):
            continue
        worker = _workers(status)[0]
        job = {"do": "time", "data": source, "model": model, "values": dict(cell.values), "log": os.devnull}
        try:
            with _ends_like_ctrl_c():
                *_, news = worker.do(job)
        except WorkerLostError as lost:
            news = {"failed": str(lost)}
        except KeyboardInterrupt:
            worker.ask_to_stop()
            raise
        finally:
            worker.close()
        if "timed" not in news:
            raise TrainingError(f"timing {source}: {news.get('failed', 'stopped')}")
        timed = news["timed"]
        status.timed[source], status.once[source] = Rate(timed["step"], timed["around"]), timed["once"]
        status.model_bytes = timed["model_bytes"]


def _workers(status: Status) -> list[Worker]:
    """As many as have work, which share the CPU's cores."""
    jobs = min(status.jobs, len(status.waiting))
    return [Worker(max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else None) for _ in range(jobs)]


def _run_cell(worker: Worker, cell: Cell, model: str, running: Running) -> str | None:
    """Run one cell; returns what went wrong, or ``None``."""
    job = {"do": "cell", "data": cell.data, "model": model, "values": dict(cell.values)}
    news: dict[str, Any] = {}
    try:
        cell.place.parent.mkdir(parents=True, exist_ok=True)
        for news in worker.do({**job, "out": str(cell.place), "log": str(cell.log)}):
            if "step" in news:
                running.saw(news["step"])
    except WorkerLostError as lost:
        return str(lost)
    except Exception as error:  # a cell must not take the others with it
        return f"{type(error).__name__}: {error}"
    return None if news.get("done") else str(news.get("failed", "stopped"))


def _tell(status: Status, ended: list[Cell], lock: threading.Lock, changed: Changed) -> None:
    with lock:
        news, ended[:] = list(ended), []
        for cell in news:
            changed(status, cell)
        changed(status, None)


@contextmanager
def _ends_like_ctrl_c() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into one Ctrl-C: they are often sent twice, and a second Ctrl-C kills the workers."""

    def interrupt(number: int, frame: Any) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}  # nohup
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_words(log: Path, lines: int = 3) -> str:
    """The end of what a cell printed."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return "\n".join(text.strip().splitlines()[-lines:])
