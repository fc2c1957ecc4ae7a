"""The process that trains one run of a grid."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from opera.core.errors import OperaError
from opera.core.registry import load_extensions
from opera.core.terminal import say
from opera.data.names import DataName
from opera.experiments.grid.run import ERROR
from opera.run.adapt import adapt
from opera.run_folder.folder import holds_run
from opera.run_folder.housekeeping import drop_checkpoints


def main() -> None:
    """Run the job on standard input. If it fails, the last line of the log gives the reason."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        run_job(job)
    except KeyboardInterrupt:
        os._exit(130)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OperaError):
            reason = "; ".join(error.lines)
        else:
            traceback.print_exc()
        say(ERROR + " ".join(reason.split()), file=sys.stderr)
        sys.exit(1)


def run_job(job: Mapping[str, Any]) -> None:
    """Train or resume a run, and delete its checkpoints."""
    load_extensions()
    folder, names = Path(job["out"]), TypeAdapter(DataName)
    data, also = names.validate_python(job["data"]), map(names.validate_python, job["also"])
    adapt(**{**job, "data": data, "also": [*also]}, resume=holds_run(folder))
    drop_checkpoints(folder)


def end_with_parent() -> None:
    """Exit as soon as the parent ends, so that the next call can continue this run.

    An interrupted run always resumes to the same result.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
