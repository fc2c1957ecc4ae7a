"""The grid's folder: its ``grid.json``, and the locks that keep a second process out.

A process that runs a part of the grid, a shard, holds a lock of its own in ``.shards``, so that the others can run at
the same time. It does not run beside a process that holds the whole grid. Each cell has the lock of its run folder too.
"""

from __future__ import annotations

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
from opera.runs.grid_record import GRID_FILE, GridRecord, planned_cells

SHARDS = ".shards"
BySet = Mapping[str, Mapping[str, Any]]
"""Settings of single data sets, by their folder in the grid."""


def check_grid_folder(
    out: Path,
    model: str,
    shared: Mapping[str, Any],
    data: BySet | None = None,
    others_run: bool = False,
) -> None:
    """Refuse a folder that holds something else, or a grid of another model or other settings.

    Args:
        out: the grid's folder.
        model: the model that all cells start from.
        shared: settings of all cells.
        data: settings of single data sets.
        others_run: whether other processes are running shards of the grid that is there.

    Raises:
        RunFolderError: naming the difference, or a folder that cannot be written to.
    """
    check_folder(out, "--out")
    if not _holds_grid(out):
        return
    if not others_run and not any(
        out.rglob(RUN_FILE)
    ):  # nothing has run yet, so the grid may still change
        return
    recorded, requested = GridRecord.read(out), _grid_record(model, shared, data)
    if recorded.model != requested.model:
        raise RunFolderError(
            f"--out {out}: holds a grid with model {recorded.model!r}, this call has {requested.model!r}; "
            "give another folder"
        )
    _refuse_other_settings(out, recorded.settings, requested.settings, "")
    for name in recorded.data.keys() & requested.data.keys():
        _refuse_other_settings(out, recorded.data[name], requested.data[name], f" on {name}")


def _holds_grid(out: Path) -> bool:
    """Whether there is a grid in a folder.

    Raises:
        RunFolderError: if there is something else.
    """
    found = set(out.iterdir()) if out.is_dir() else set[Path]()
    if out / GRID_FILE in found:
        return True
    ours = {out / name for name in (LOCK_FILE, TURN_FILE, SHARDS)}
    if found - ours - {unfinished(out / GRID_FILE)}:
        raise RunFolderError(
            f"--out {out}: is not empty and holds no grid; give an empty or a new folder"
        )
    return False


def _refuse_other_settings(
    out: Path, recorded: Mapping[str, Any], requested: Mapping[str, Any], where: str
) -> None:
    recorded, requested = (
        TrainSettings.with_effect(settings) for settings in (recorded, requested)
    )
    names = [
        name
        for name in sorted({*recorded, *requested})
        if recorded.get(name) != requested.get(name)
    ]
    if names:
        before, now = (_format_values(names, settings) for settings in (recorded, requested))
        raise RunFolderError(
            f"--out {out}: holds a grid with settings {before}{where}; this call has {now}; give another folder"
        )


def _format_values(names: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The named settings as ``NAME=VALUE``; one that was not given has its default."""
    return ", ".join(
        f"{name}={_format_value(settings[name])}" if name in settings else f"the default {name}"
        for name in names
    )


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ":".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def write_grid_file(
    out: Path,
    model: str,
    shared: Mapping[str, Any],
    cells: Sequence[Cell] = (),
    data: BySet | None = None,
    scale: str | None = None,
) -> None:
    """Write ``grid.json``: the settings, and these cells and data sets besides those of earlier calls."""
    out.mkdir(parents=True, exist_ok=True)
    folders = dict.fromkeys([*planned_cells(out), *(cell.folder for cell in cells)])
    earlier = GridRecord.read(out) if (out / GRID_FILE).is_file() else None
    record = _grid_record(model, shared, data, [str(folder.relative_to(out)) for folder in folders])
    if earlier is not None:
        record = record.model_copy(update={"data": {**earlier.data, **record.data}})
        scale = scale or earlier.scale
    record.model_copy(update={"scale": scale}).write(out)


@contextmanager
def opened_grid(
    out: Path,
    model: str,
    shared: Mapping[str, Any],
    cells: Sequence[Cell],
    data: BySet | None = None,
    shard: str | None = None,
    scale: str | None = None,
) -> Iterator[None]:
    """Hold a grid's folder, or one shard of it, for this process, with ``grid.json`` written.

    Args:
        out: the grid's folder.
        model: the model that all cells start from.
        shared: settings of all cells.
        cells: the cells of the whole grid.
        data: settings of single data sets.
        shard: name of the part that this process runs, the same for the same cells; ``None`` for the whole grid.
        scale: the size of a reproduction, where it is not the paper's own.

    Raises:
        RunFolderError: if another process is running the grid or this shard, or has started another grid here in the
            meantime.
    """
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with own_turn(out):
            held.enter_context(_whole(out) if shard is None else _shard(out, shard))
            others = [place for place in _shards(out) if place.name != shard and in_use(place)]
            check_grid_folder(out, model, shared, data, others_run=bool(others))
            write_grid_file(out, model, shared, cells, data, scale)
        yield


@contextmanager
def _whole(out: Path) -> Iterator[None]:
    with sole_use(out, "runs this grid"):
        for place in _shards(out):
            refuse_in_use(place)
        yield


@contextmanager
def _shard(out: Path, shard: str) -> Iterator[None]:
    refuse_in_use(out)
    place = out / SHARDS / shard
    place.mkdir(parents=True, exist_ok=True)
    with sole_use(place, "runs this part of the grid"):
        yield


def _shards(out: Path) -> list[Path]:
    return sorted((out / SHARDS).glob("*"))


def _grid_record(
    model: str, shared: Mapping[str, Any], data: BySet | None = None, cells: Sequence[str] = ()
) -> GridRecord:
    by_set = {name: _parsed(settings) for name, settings in (data or {}).items()}
    return GridRecord.of_cells(model, _parsed(shared), cells, by_set)


def _parsed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: parse_value(name, value) for name, value in with_full_names(settings).items()}
