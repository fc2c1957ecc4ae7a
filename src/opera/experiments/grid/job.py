"""The process that trains one run of a grid."""

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
from opera.data import load_data
from opera.experiments.grid.run import Message
from opera.run.adapt import adapt
from opera.runs.folder import holds_run
from opera.runs.housekeeping import drop_checkpoints


def main() -> None:
    """Run the job on standard input, and write a :data:`Message` to standard output."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that prints do not mix with the message
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        message = run_job(job)
    except KeyboardInterrupt:
        os._exit(130)
    with suppress(BrokenPipeError):  # the parent may have ended
        print(json.dumps(message), file=out, flush=True)


def end_with_parent() -> None:
    """Exit as soon as the parent ends, so that the next call can continue this run.

    An interrupted run always resumes to the same result.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


def run_job(job: Mapping[str, Any]) -> Message:
    """Train or resume a run and delete its checkpoints; return the outcome."""
    try:
        load_extensions()  # here, so that the message reports an error
        folder = Path(job["out"])
        data = load_data(job["data"])
        adapt(data, model=job["model"], out=folder, resume=holds_run(folder), **job["values"])
        drop_checkpoints(folder)
    except OperaError as error:
        return _failed(str(error))
    except OSError as error:
        path = error.filename or job["out"]
        return _failed(f"{path}: {(error.strerror or str(error)).lower()}")
    except Exception as error:
        with suppress(OSError):
            traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return {}


def _failed(reason: str) -> Message:
    with suppress(OSError):  # the disk of the log may be full
        say(f"opera: error: {reason}", file=sys.stderr)
    return {"failed": reason}


if __name__ == "__main__":
    main()
