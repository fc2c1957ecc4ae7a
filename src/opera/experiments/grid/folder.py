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
from opera.experiments.grid.plan import Cell
from opera.runs.folder import RUN_FILE
from opera.runs.record import GRID_FILE, GridRecord

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


def check_grid_folder(out: Path, requested: GridRecord, others_run: bool = False) -> None:
    """Refuse a folder that holds something else, or a grid of another model or other settings.

    While no cell has run, and no others run shards of it, the grid may still change.
    """
    check_folder(out, "--out")
    if not _holds_grid(out) or not (others_run or any(out.rglob(RUN_FILE))):
        return
    recorded = GridRecord.read(out)
    if recorded.model != requested.model:
        raise RunFolderError(
            f"--out {out}: holds a grid with model {recorded.model!r}, this call has "
            f"{requested.model!r}; give another folder"
        )
    _refuse_other_settings(out, recorded.settings, requested.settings, "")
    for name in recorded.data.keys() & requested.data.keys():
        _refuse_other_settings(out, recorded.data[name], requested.data[name], f" on {name}")


def _holds_grid(out: Path) -> bool:
    """Whether there is a grid in a folder; RunFolderError if there is something else."""
    found = set(out.iterdir()) if out.is_dir() else set[Path]()
    if out / GRID_FILE in found:
        return True
    ours = {out / name for name in (LOCK_FILE, TURN_FILE, SHARDS)}
    if found - ours - {unfinished(out / GRID_FILE)}:
        rule = "is not empty and holds no grid; give an empty or a new folder"
        raise RunFolderError(f"--out {out}: {rule}")
    return False


def _refuse_other_settings(
    out: Path, recorded: Mapping[str, Any], requested: Mapping[str, Any], where: str
) -> None:
    before, now = TrainSettings.with_effect(recorded), TrainSettings.with_effect(requested)
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if names:
        raise RunFolderError(
            f"--out {out}: holds a grid with settings {_format(names, before)}{where}; this call "
            f"has {_format(names, now)}; give another folder"
        )


def _format(names: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The named settings as ``NAME=VALUE``; one that was not given has its default."""
    words = []
    for name in names:
        value = settings.get(name)
        if isinstance(value, list | tuple):
            value = ":".join(map(str, value))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words.append(f"{name}={text}" if name in settings else f"the default {name}")
    return ", ".join(words)


def write_grid_file(out: Path, record: GridRecord) -> None:
    """Write ``grid.json``, with the cells and data sets of earlier calls kept."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / GRID_FILE).is_file():
        earlier = GridRecord.read(out)
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
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with own_turn(out):
            shards = sorted((out / SHARDS).glob("*"))
            if shard is None:
                held.enter_context(sole_use(out, "runs this grid"))
                for place in shards:
                    refuse_in_use(place)
            else:
                refuse_in_use(out)
                (out / SHARDS / shard).mkdir(parents=True, exist_ok=True)
                held.enter_context(sole_use(out / SHARDS / shard, "runs this part of the grid"))
            others = any(place.name != shard and in_use(place) for place in shards)
            check_grid_folder(out, record, others_run=others)
            write_grid_file(out, record)
        yield
