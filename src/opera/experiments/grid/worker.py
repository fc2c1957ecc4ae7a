"""The worker's side: a process that runs a grid's cells.

Jobs arrive as JSON lines on standard input; messages leave as JSON lines on standard output. A process of its own keeps
torch loaded from cell to cell, and takes no other cell with it when it dies.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from opera.core.errors import InputError, OperaError
from opera.core.registry import load_extensions
from opera.core.terminal import say
from opera.data import RetrievalData, load_data
from opera.experiments.grid.timing import time_cell
from opera.runs.folder import holds_run
from opera.runs.housekeeping import drop_checkpoints
from opera.training.adapt import adapt


def main() -> None:
    """Run jobs until standard input is closed. Where that happens during a job, the parent is gone, and this ends."""
    busy = threading.Event()
    threading.Thread(target=end_with_parent, args=(busy,), daemon=True).start()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing printed may be taken for a message
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    for line in iter(sys.stdin.readline, ""):
        job = json.loads(line)
        busy.set()
        try:
            with output_appended_to(job["log"]):
                message = run_job(job)
        except KeyboardInterrupt:
            with suppress(BrokenPipeError):  # the parent may be gone
                send(out, stopped=True)
            return
        except OSError as error:  # the log cannot be written
            message = _failed(f"{job['log']}: {(error.strerror or str(error)).lower()}")
        busy.clear()
        send(out, **message)


def end_with_parent(busy: threading.Event) -> None:
    """End this process as soon as its parent has ended without a word, so that the next call can train the cell.

    A run that is ended at any moment resumes to the same end.
    """
    hung_up = select.poll()
    hung_up.register(0, 0)  # a hang-up is always reported; lines that arrive are not
    hung_up.poll()
    if busy.is_set():
        os._exit(1)


def run_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job, and return the message that says how it ended."""
    try:
        load_extensions()  # here, so that an error is in the message
        if job["kind"] == "time":
            return {
                "timing": asdict(time_cell(load_once(job["data"]), job["model"], job["values"]))
            }
        train_cell(job)
    except OperaError as error:
        return _failed(str(error)) | ({"input": True} if isinstance(error, InputError) else {})
    except OSError as error:
        return _failed(
            f"{error.filename or job.get('out', job['data'])}: {(error.strerror or str(error)).lower()}"
        )
    except Exception as error:  # one cell's failure must not end the others
        with suppress(OSError):
            traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"done": True}


def _failed(reason: str) -> dict[str, Any]:
    with suppress(OSError):  # the log may lie on a full disk
        say(f"opera: error: {reason}", file=sys.stderr)
    return {"failed": reason}


def train_cell(job: Mapping[str, Any]) -> None:
    """Train a cell, or resume it from its checkpoint, and delete its checkpoints."""
    folder = Path(job["out"])
    adapt(
        load_once(job["data"]),
        model=job["model"],
        out=folder,
        resume=holds_run(folder),
        **job["values"],
    )
    drop_checkpoints(folder)


@cache
def load_once(source: str) -> RetrievalData:
    """Load a data set and keep it for the cells that follow."""
    return load_data(source)


@contextmanager
def output_appended_to(path: str) -> Iterator[None]:
    """Append all output of this process, by C code too, to a file."""
    saved = os.dup(1), os.dup(2)
    with Path(path).open("a", encoding="utf-8") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        try:
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):  # the log may lie on a full disk
                    stream.flush()
            for descriptor, original in enumerate(saved, start=1):
                os.dup2(original, descriptor)
                os.close(original)


def send(out: TextIO, **message: Any) -> None:
    """Send a message to the parent process."""
    out.write(json.dumps(message) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
