"""One of the processes that run a grid's cells: jobs come as JSON lines on standard input, news goes out the same way.

A process of its own keeps torch loaded from cell to cell, and takes no other cell with it when it dies.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from transformers import TrainerCallback

from opera.core.errors import OperaError
from opera.data import RetrievalData, load_data
from opera.experiments.grid.timing import time_cell
from opera.runs.folder import drop_checkpoints, holds_run
from opera.training.adapt import adapt

SECONDS_BETWEEN_NEWS = 0.5


class News(TrainerCallback):  # type: ignore[misc]
    """Tells the step that training is at, now and then."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._told = out, 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell it, if the last time is long enough ago."""
        now = time.monotonic()
        if now - self._told >= SECONDS_BETWEEN_NEWS:
            self._told = now
            tell(self._out, step=state.global_step)


def main() -> None:
    """Do jobs until there are no more."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what is printed must not look like news
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    for line in iter(sys.stdin.readline, ""):
        job = json.loads(line)
        try:
            with printed_to(job["log"]):
                news = do(job, out)
        except KeyboardInterrupt:
            with suppress(BrokenPipeError):  # who asked may be gone
                tell(out, stopped=True)
            return
        tell(out, **news)


def do(job: Mapping[str, Any], out: TextIO) -> dict[str, Any]:
    """Do a job, and say how it ended."""
    try:
        if job["do"] == "time":
            timed = time_cell(loaded(job["data"]), job["model"], job["values"])
            return {"timed": asdict(timed)}
        place = Path(job["out"])
        adapt(
            loaded(job["data"]),
            model=job["model"],
            out=place,
            resume=holds_run(place),
            callbacks=[News(out)],
            **job["values"],
        )
        drop_checkpoints(place)
    except OperaError as error:
        print(f"opera: error: {error}", file=sys.stderr)
        return {"failed": str(error)}
    except Exception as error:  # a cell must not take the others with it
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"done": True}


@cache
def loaded(source: str) -> RetrievalData:
    """Load a data set, once."""
    return load_data(source)


@contextmanager
def printed_to(path: str | None) -> Iterator[None]:
    """Let all that is printed, by C code too, go to the end of a file."""
    if path is None:
        yield
        return
    kept = os.dup(1), os.dup(2)
    with Path(path).open("a", encoding="utf-8") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in enumerate(kept, start=1):
                os.dup2(before, number)
                os.close(before)


def tell(out: TextIO, **news: Any) -> None:
    """Send news."""
    out.write(json.dumps(news) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
