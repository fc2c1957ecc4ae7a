"""The grid's folder: its ``grid.json``, and the lock that keeps a second process out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opera.config.recipe import parse_value, with_full_names
from opera.core.errors import RunFolderError
from opera.core.files import check_folder, unfinished_files
from opera.core.locks import LOCK_FILE, sole_use
from opera.experiments.grid.plan import Cell
from opera.runs.folder import RUN_FILE
from opera.runs.grid_record import GRID_FILE, GridRecord, planned_cells


def check_grid_folder(out: Path, model: str, shared: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something else, or a grid of another model or other shared settings.

    Raises:
        RunFolderError: naming the difference, or a folder that cannot be written to.
    """
    check_folder(out, "--out")
    if not (out / GRID_FILE).is_file():
        ours = {out / LOCK_FILE, *unfinished_files(out / "opera"), *unfinished_files(out / GRID_FILE)}
        if out.is_dir() and set(out.iterdir()) - ours:
            raise RunFolderError(f"--out {out}: is not empty and holds no grid; give an empty or a new folder")
        return
    if not any(out.rglob(RUN_FILE)):  # nothing has run yet, so the grid may still change
        return
    recorded, requested = GridRecord.read(out), _grid_record(model, shared)
    if recorded.model != requested.model:
        raise RunFolderError(
            f"--out {out}: holds a grid with model {recorded.model!r}, this call has {requested.model!r}; "
            "give another folder"
        )
    names = [
        name
        for name in sorted({*recorded.settings, *requested.settings})
        if recorded.settings.get(name) != requested.settings.get(name)
    ]
    if names:
        before, now = (_format_values(names, record.settings) for record in (recorded, requested))
        raise RunFolderError(
            f"--out {out}: holds a grid with settings {before}; this call has {now}; give another folder"
        )


def _format_values(names: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The named settings as ``NAME=VALUE``; one that was not given has its default."""
    return ", ".join(
        f"{name}={_format_value(settings[name])}" if name in settings else f"the default {name}" for name in names
    )


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ":".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def write_grid_file(out: Path, model: str, shared: Mapping[str, Any], cells: Sequence[Cell] = ()) -> None:
    """Write ``grid.json``: what all cells share, and these cells besides those of earlier calls."""
    out.mkdir(parents=True, exist_ok=True)
    folders = dict.fromkeys([*planned_cells(out), *(cell.folder for cell in cells)])
    _grid_record(model, shared, [str(folder.relative_to(out)) for folder in folders]).write(out)


@contextmanager
def opened_grid(out: Path, model: str, shared: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[None]:
    """Hold a grid's folder for this process, with ``grid.json`` written.

    Raises:
        RunFolderError: if another process is running the grid, or has started another one here in the meantime.
    """
    out.mkdir(parents=True, exist_ok=True)
    with sole_use(out, "runs this grid"):
        check_grid_folder(out, model, shared)
        write_grid_file(out, model, shared, cells)
        yield


def _grid_record(model: str, shared: Mapping[str, Any], cells: Sequence[str] = ()) -> GridRecord:
    settings = {name: parse_value(name, value) for name, value in with_full_names(shared).items()}
    return GridRecord.of_cells(model, settings, cells)
