"""The process of a cell."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from opera.core.errors import OperaError
from opera.core.registry import load_extensions
from opera.core.terminal import say
from opera.data import RetrievalData, load_data
from opera.experiments.grid.run import Message
from opera.run.adapt import adapt
from opera.runs.folder import holds_run
from opera.runs.housekeeping import drop_checkpoints


def main() -> None:
    """Run the job on standard input, and say on standard output how it went."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing printed may be taken for the message
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        message = run_job(job)
    except KeyboardInterrupt:
        os._exit(130)
    with suppress(BrokenPipeError):  # the parent may be gone
        print(json.dumps(message), file=out, flush=True)


def end_with_parent() -> None:
    """End at once when the parent is gone, so that the next call can train the cell.

    A run that is ended at any moment resumes to the same end.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


def run_job(job: Mapping[str, Any]) -> Message:
    """Train a cell; returns how that went."""
    try:
        load_extensions()  # here, so that an error is in the message
        data = load_data(job["data"])
        train_cell(data, job["model"], Path(job["out"]), job["values"])
    except OperaError as error:
        return _failed(str(error))
    except OSError as error:
        where = error.filename or job["out"]
        return _failed(f"{where}: {(error.strerror or str(error)).lower()}")
    except Exception as error:
        with suppress(OSError):
            traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return {}


def _failed(reason: str) -> Message:
    with suppress(OSError):  # the log may lie on a full disk
        say(f"opera: error: {reason}", file=sys.stderr)
    return {"failed": reason}


def train_cell(data: RetrievalData, model: str, folder: Path, values: Mapping[str, Any]) -> None:
    """Train a cell, or resume it from its checkpoint, and delete its checkpoints."""
    adapt(data, model=model, out=folder, resume=holds_run(folder), **values)
    drop_checkpoints(folder)


if __name__ == "__main__":
    main()
