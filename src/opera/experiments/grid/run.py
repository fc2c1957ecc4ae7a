"""Run the cells of a grid in worker processes, one or several at a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from opera.experiments.grid.interrupts import signals_as_interrupt
from opera.experiments.grid.plan import Cell
from opera.experiments.grid.status import Status
from opera.experiments.grid.worker_process import WorkerLostError, WorkerProcess, make_workers

WAIT_SECONDS = 0.25
"""A signal that arrives just before a wait begins does not end it, so no wait is without end."""

OnChange = Callable[[Status, Cell], None]


def run_grid(status: Status, model: str, on_change: OnChange = lambda status, cell: None) -> None:
    """Run the cells that are not finished. One that fails is recorded in the status, and the rest go on.

    A cell that was interrupted resumes from its checkpoint. Embeddings and rankings by the pretrained model are kept
    in the cache, so that cells share them.

    Args:
        status: the cells, and how many to run at once; kept up to date.
        model: the model that all cells start from.
        on_change: called with each cell that has started or ended.

    Raises:
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the running cells have saved a checkpoint. A second Ctrl-C
            kills them.
    """
    scheduler = Scheduler(status, model)
    with signals_as_interrupt(), scheduler.stopped_on_error():
        scheduler.start()
        scheduler.report(on_change)


class Scheduler:
    """Hands the waiting cells to workers, each driven by a thread of its own.

    Args:
        status: the cells; kept up to date under a lock.
        model: the model that all cells start from.
    """

    def __init__(self, status: Status, model: str) -> None:
        self._status, self._model = status, model
        self._waiting = iter(status.waiting)
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._news: queue.SimpleQueue[Cell | None] = queue.SimpleQueue()
        self._workers = make_workers(min(status.jobs, len(status.waiting)))
        self._threads = [
            threading.Thread(target=self._drive, args=(w,), daemon=True) for w in self._workers
        ]

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def report(self, on_change: OnChange) -> None:
        """Call ``on_change`` until every worker has ended."""
        active = len(self._threads)
        while active:
            with suppress(queue.Empty):
                cell = self._news.get(timeout=WAIT_SECONDS)
                if cell is None:
                    active -= 1
                    continue
                with self._lock:
                    on_change(self._status, cell)

    @contextmanager
    def stopped_on_error(self) -> Iterator[None]:
        """Terminate the workers on Ctrl-C or any error, and wait until they have saved; a second Ctrl-C kills them."""
        try:
            yield
        except BaseException:
            try:
                self._stop()
            except KeyboardInterrupt:
                for worker in self._workers:
                    worker.close(kill=True)
            raise

    def _stop(self) -> None:
        self._stopping.set()
        for worker in self._workers:
            worker.terminate()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(WAIT_SECONDS)

    def _drive(self, worker: WorkerProcess) -> None:
        """Run waiting cells on a worker until there are none; tells of each start and end, and at last ``None``."""
        try:
            while (cell := self._take()) is not None:
                self._news.put(cell)
                self._record(cell, run_cell(worker, cell, self._model))
                self._news.put(cell)
            worker.close()
        finally:
            self._news.put(None)

    def _take(self) -> Cell | None:
        """Mark the next waiting cell as running."""
        with self._lock:
            cell = None if self._stopping.is_set() else next(self._waiting, None)
            if cell is not None:
                self._status.running[cell.folder] = time.monotonic()
            return cell

    def _record(self, cell: Cell, failure: str | None) -> None:
        """Record how a cell ended; one that was stopped waits for the next call."""
        with self._lock:
            del self._status.running[cell.folder]
            if failure is None:
                self._status.done.add(cell.folder)
            elif not self._stopping.is_set():
                self._status.failed[cell.folder] = failure


def run_cell(worker: WorkerProcess, cell: Cell, model: str) -> str | None:
    """Run a cell on a worker; returns why it failed, or ``None``."""
    job: dict[str, Any] = {
        "kind": "train",
        "data": cell.data,
        "model": model,
        "values": dict(cell.values),
    }
    try:
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        message = worker.run_job({**job, "out": str(cell.folder), "log": str(cell.log)})
    except WorkerLostError as lost:
        return str(lost)
    except Exception as error:  # one cell's failure must not end the others
        return f"{type(error).__name__}: {error}"
    return None if message.get("done") else str(message.get("failed", "stopped"))
