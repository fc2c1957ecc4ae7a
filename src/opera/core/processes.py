"""What the processes that torchrun started do together; torch.distributed connects them.

Every process calls these functions, in the same order. With one process, each does its work alone.
And what signals do to one process.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from opera.core.cache import WHERE, cached
from opera.core.errors import OperaError
from opera.core.storage import writing

T = TypeVar("T")


def process_count() -> int:
    """How many processes there are."""
    return _torch_distributed().get_world_size() if _joined() else 1


def process_index() -> int:
    """Which one this is: 0 for the main one."""
    return _torch_distributed().get_rank() if _joined() else 0


def from_main(value: T) -> T:
    """Return the main process's value in every process; it must be picklable."""
    values = [value]
    if process_count() > 1:
        _torch_distributed().broadcast_object_list(values)
    return values[0]


def everywhere(work: Callable[[], T]) -> list[T]:
    """Do some work in every process, and return what each one's gave, which must be picklable, in
    all of them.

    Where it raises an exception in one process, all raise: none waits for ever for the others.
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
        results, (value, None if error is None else _told(error))
    )
    if error is not None:
        raise error
    for _, other in results:
        if other is not None:
            raise other
    return [value for value, _ in results]


def shares(count: int, unit: int) -> list[slice]:
    """Cut rows into a range for each process: contiguous, of whole units but at the end, as even as
    can be.
    """
    processes, units = process_count(), -(-count // unit)
    bounds = [min(count, units * index // processes * unit) for index in range(processes + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def own_share(count: int, unit: int) -> slice:
    """Return this process's range of :func:`shares`."""
    return shares(count, unit)[process_index()]


def cached_by_all(
    kind: str,
    key: str,
    write: Callable[[Path, list[str]], object],
    names: Sequence[str] = (),
) -> Path:
    """Return the folder of a cache entry, as :func:`opera.core.cache.cached` does; all processes
    write it together.

    Args:
        kind: what the entry holds.
        key: hex digest of everything that decides its contents; the main process's counts.
        write: called in every process with the same folder and its share of the missing names.
        names: the entry's files, if they are known before.
    """
    asked: list[bool] = []

    def write_share(folder: Path, missing: list[str]) -> None:
        everywhere(lambda: write(folder, missing[process_index() :: process_count()]))

    def lead(folder: Path, missing: list[str]) -> None:
        asked.append(True)
        from_main((folder, missing))
        write_share(folder, missing)

    def work() -> Path:
        if process_index() == 0:
            try:
                return cached(kind, key, lead, names)
            finally:
                if not asked:
                    from_main(None)
        if (task := from_main(None)) is not None:
            with writing(task[0].parent, WHERE):
                write_share(*task)
        return Path()

    return everywhere(work)[0]


def _told(error: Exception) -> OperaError:
    """The exception that other processes raise for one of this process."""
    if isinstance(error, OperaError):
        return error
    kind, said = type(error).__name__, str(error).strip().splitlines()
    return OperaError(
        f"process {process_index()} failed ({': '.join([kind, *said[:1]])}); see its message"
    )


def _joined() -> bool:
    """Whether this process has joined others, which only torch can have done; it is not imported to
    find out.
    """
    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized()


def _torch_distributed() -> Any:
    return sys.modules["torch.distributed"]


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Raise a single KeyboardInterrupt on SIGTERM or SIGHUP, as these are often sent twice.

    One that is ignored already, as under nohup, stays so. Needs the main thread, else does nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP) if main}
    ours = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}

    def interrupt(number: int, frame: Any) -> None:
        for other in ours:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for number in ours:
            signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
