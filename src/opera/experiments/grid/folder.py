"""The grid's folder: its ``grid.json``, and the lock that keeps a second process out."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opera.config.recipe import parse_value, with_full_names
from opera.core.errors import RunFolderError
from opera.core.files import replace_file
from opera.experiments.grid.plan import Cell
from opera.runs.folder import GRID_FILE, RUN_FILE, check_writable, planned_cells

LOCK_FILE = ".running"


def check_grid_folder(out: Path, model: str, shared: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something else, or a grid of another model or other shared settings.

    Raises:
        RunFolderError: naming the difference, or a folder that cannot be written to.
    """
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"--out {out}: is a file; give a folder")
    check_writable(out)
    if not (out / GRID_FILE).is_file():
        if out.is_dir() and any(out.iterdir()):
            raise RunFolderError(f"--out {out}: is not empty and holds no grid; give an empty or a new folder")
        return
    if not any(out.rglob(RUN_FILE)):  # nothing has run yet, so the grid may still change
        return
    try:
        known = dict(json.loads((out / GRID_FILE).read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise RunFolderError(f"{out / GRID_FILE}: is not as opera wrote it; give another folder") from None
    for name, value in _shared_record(model, shared).items():
        if known.get(name) != value:
            raise RunFolderError(
                f"--out {out}: holds a grid with {name} {known.get(name)!r}, this call has {value!r}; "
                "give another folder"
            )


def write_grid_file(out: Path, model: str, shared: Mapping[str, Any], cells: Sequence[Cell] = ()) -> None:
    """Write ``grid.json``: what all cells share, and these cells besides those of earlier calls."""
    out.mkdir(parents=True, exist_ok=True)
    folders = dict.fromkeys([*planned_cells(out), *(cell.folder for cell in cells)])
    record = {**_shared_record(model, shared), "cells": [str(folder.relative_to(out)) for folder in folders]}
    text = json.dumps(record, indent=2) + "\n"
    replace_file(out / GRID_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))


@contextmanager
def grid_lock(out: Path) -> Iterator[None]:
    """Hold a grid's folder for one process at a time. The system releases the lock when the process ends.

    Raises:
        RunFolderError: if another process is running the grid.
    """
    with (out / LOCK_FILE).open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise RunFolderError(
                f"--out {out}: process {lock.read().strip()} is running this grid; wait until it is done, or stop it"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _shared_record(model: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: parse_value(name, value) for name, value in with_full_names(shared).items()}
    return dict(json.loads(json.dumps({"model": model, "settings": settings}, sort_keys=True, default=str)))
