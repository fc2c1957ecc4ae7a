"""Work that the processes of torchrun share, connected by torch.distributed; and signals.

Every process must call these functions in the same order. A single process does all the work.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opera.core.arrays import T
from opera.core.cache import WHERE, cached
from opera.core.errors import OperaError
from opera.core.files import writing
from opera.core.terminal import error_summary


def several_processes() -> bool:
    """Whether torchrun started several processes, which may not be connected yet."""
    size = os.environ.get("WORLD_SIZE", "1")
    return size.isdecimal() and int(size) > 1


def process_count() -> int:
    """Return the number of processes."""
    return _torch_distributed().get_world_size() if _joined() else 1


def process_index() -> int:
    """Return the index of this process; the main process has 0."""
    return _torch_distributed().get_rank() if _joined() else 0


def from_main(value: T) -> T:
    """Return the main process's value, which must be picklable, in every process."""
    values = [value]
    if process_count() > 1:
        _torch_distributed().broadcast_object_list(values)
    return values[0]


def everywhere(work: Callable[[], T]) -> list[T]:
    """Do some work in every process, and return the results of all processes in each of them.

    The results must be picklable. If the work fails in one process, all processes raise an error,
    so that none waits forever.
    """
    if process_count() == 1:
        return [work()]
    value, error = None, None
    try:
        value = work()
    except Exception as raised:
        error = raised
    results: list[Any] = [None] * process_count()
    _torch_distributed().all_gather_object(
        results, (value, None if error is None else _error_for_others(error))
    )
    if error is not None:
        raise error
    for _, error_elsewhere in results:
        if error_elsewhere is not None:
            raise error_elsewhere
    return [value for value, _ in results]


def process_range(count: int, unit: int) -> slice:
    """Return the contiguous range of rows for this process. The ranges of all processes have about
    the same length, and all but the last consist of whole units.
    """
    index, units = process_index(), -(-count // unit)
    first, end = (units * number // process_count() * unit for number in (index, index + 1))
    return slice(min(count, first), min(count, end))


def cached_by_all(
    kind: str,
    key: str,
    write: Callable[[Path, list[str]], object],
    names: Sequence[str] = (),
) -> Path:
    """Return the folder of a cache entry, as :func:`opera.core.cache.cached` does. All processes
    write it together.

    Args:
        kind: the kind of contents.
        key: hex digest of everything that decides the contents; the main process's key is used.
        write: called in every process with the same folder and its share of the missing names.
        names: the entry's files, if they are known in advance.
    """
    announced = False

    def write_share(folder: Path, missing: list[str]) -> None:
        everywhere(lambda: write(folder, missing[process_index() :: process_count()]))

    def lead(folder: Path, missing: list[str]) -> None:
        nonlocal announced
        announced = True
        from_main((folder, missing))
        write_share(folder, missing)

    def work() -> Path:
        if process_index() == 0:
            try:
                return cached(kind, key, lead, names)
            finally:
                if not announced:
                    from_main(None)
        if (task := from_main(None)) is not None:
            with writing(task[0].parent, WHERE):
                write_share(*task)
        return Path()

    return everywhere(work)[0]


def _error_for_others(error: Exception) -> OperaError:
    """Return the error that the other processes raise after an error of this process."""
    if isinstance(error, OperaError):
        return error
    return OperaError(f"process {process_index()} failed ({error_summary(error)}); see its message")


def _joined() -> bool:
    """Whether torch has connected this process to others. This does not import torch."""
    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized()


def _torch_distributed() -> Any:
    return sys.modules["torch.distributed"]


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Raise a single KeyboardInterrupt on SIGTERM or SIGHUP, which are often sent twice.

    A signal that is already ignored, as under nohup, stays ignored. Outside the main thread, this
    does nothing.
    """
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                handlers[number] = handler

    def interrupt(number: int, frame: Any) -> None:
        for handled in handlers:
            signal.signal(handled, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for number in handlers:
            signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
