"""The grid's folder: its ``grid.json``, and the locks that keep a second process out.

A process that runs a part of the grid, a shard, holds a lock of its own in ``.shards``, so that the
others can run at the same time. It does not run beside a process that holds the whole grid. Each
cell has the lock of its run folder too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from opera.config.recipe import parse_value, with_full_names
from opera.config.training import TrainSettings
from opera.core.errors import RunFolderError
from opera.core.files import check_folder, unfinished
from opera.core.locks import LOCK_FILE, TURN_FILE, in_use, own_turn, refuse_in_use, sole_use
from opera.experiments.analysis import format_settings
from opera.experiments.grid.plan import Cell
from opera.runs.folder import RUN_FILE
from opera.runs.record import GRID_FILE, GridRecord, grid_in

SHARDS = ".shards"


def grid_record(
    out: Path,
    model: str,
    shared: Mapping[str, Any],
    cells: Sequence[Cell] = (),
    data: Mapping[str, Mapping[str, Any]] | None = None,
    scale: str | None = None,
) -> GridRecord:
    """What ``grid.json`` says of a call; ``data`` are settings of data sets by their folder."""
    folders = [str(cell.folder.relative_to(out)) for cell in cells]
    by_set = {name: _plain(settings) for name, settings in (data or {}).items()}
    return GridRecord(model=model, settings=_plain(shared), cells=folders, data=by_set, scale=scale)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their full names, sorted, as JSON holds them."""
    full = with_full_names(settings)
    values = {name: parse_value(name, value) for name, value in full.items()}
    plain: dict[str, Any] = json.loads(json.dumps(values, sort_keys=True, default=str))
    return plain


def check_grid_folder(out: Path, requested: GridRecord) -> None:
    """Refuse a folder that holds something else, or a grid of another model or other settings.

    While no cell and no shard has run, the grid may still change.
    """
    check_folder(out, "--out")
    shards = out / SHARDS
    ours = {out / LOCK_FILE, out / TURN_FILE, shards, unfinished(out / GRID_FILE)}
    recorded = grid_in(out)
    if recorded is None:
        if out.is_dir() and set(out.iterdir()) - ours:
            rule = "is not empty and holds no grid; give an empty or a new folder"
            raise RunFolderError(f"--out {out}: {rule}")
        return
    if not any(out.rglob(RUN_FILE)) and not any(map(in_use, shards.glob("*"))):
        return
    other = "; give another folder"
    if recorded.model != requested.model:
        models = f"holds a grid with model {recorded.model!r}, this call has {requested.model!r}"
        raise RunFolderError(f"--out {out}: {models}{other}")
    sets = recorded.data.keys() & requested.data.keys()
    pairs = {f" on {name}": (recorded.data[name], requested.data[name]) for name in sorted(sets)}
    for where, both in {"": (recorded.settings, requested.settings), **pairs}.items():
        before, now = map(TrainSettings.with_effect, both)
        names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        if names:
            theirs, ours_now = (_format(names, settings) for settings in (before, now))
            found = f"holds a grid with settings {theirs}{where}; this call has {ours_now}"
            raise RunFolderError(f"--out {out}: {found}{other}")


def _format(names: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The named settings as ``NAME=VALUE``; one that was not given has its default."""
    given = {name: format_settings({name: settings[name]}) for name in names if name in settings}
    return ", ".join(given.get(name, f"the default {name}") for name in names)


def write_grid_file(out: Path, record: GridRecord) -> None:
    """Write ``grid.json``, with the cells and data sets of earlier calls kept."""
    out.mkdir(parents=True, exist_ok=True)
    if (earlier := grid_in(out)) is not None:
        kept = {
            "cells": list(dict.fromkeys([*earlier.cells, *record.cells])),
            "data": {**earlier.data, **record.data},
            "scale": record.scale or earlier.scale,
        }
        record = record.model_copy(update=kept)
    record.write(out)


@contextmanager
def opened_grid(out: Path, record: GridRecord, shard: str | None = None) -> Iterator[None]:
    """Hold a grid's folder, or one shard of it, for this process, with ``grid.json`` written.

    A shard's name is the same for the same cells. RunFolderError is raised if another process runs
    the grid or this shard, or has started another grid here in the meantime.
    """
    home = out if shard is None else out / SHARDS / shard
    what = "runs this grid" if shard is None else "runs this part of the grid"
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with own_turn(out):
            for other in [out] if shard else (out / SHARDS).glob("*"):
                refuse_in_use(other)
            check_grid_folder(out, record)
            home.mkdir(parents=True, exist_ok=True)
            held.enter_context(sole_use(home, what))
            write_grid_file(out, record)
        yield
