"""The grid's folder: what is refused, what is recorded, and the lock."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from grids import finish_cell, planned
from opera.core.errors import RunFolderError
from opera.experiments.grid import compare as folder
from opera.experiments.grid.compare import grid_record


def check_grid_folder(out: Path, *given: Any, **more: Any) -> None:
    folder.check_grid_folder(out, grid_record(out, *given, **more))


def write_grid_file(out: Path, *given: Any, **more: Any) -> None:
    folder.write_grid_file(out, grid_record(out, *given, **more))


def opened_grid(out: Path, *given: Any) -> AbstractContextManager[None]:
    return folder.opened_grid(out, grid_record(out, *given))


def test_a_grid_of_another_model_or_settings_is_refused_once_something_ran(tmp_path: Path) -> None:
    out = tmp_path / "grid"
    write_grid_file(out, "one", {"lr": 0.1, "range": "1:50"})
    check_grid_folder(out, "two", {})
    (cell, *_) = planned(out)
    finish_cell(cell)
    check_grid_folder(out, "one", {"learning_rate": 0.1, "range": "1:50"})
    with pytest.raises(RunFolderError, match="holds a grid with model 'one', this call has 'two'"):
        check_grid_folder(out, "two", {"lr": 0.1, "range": "1:50"})
    with pytest.raises(
        RunFolderError,
        match=r"with settings learning_rate=0\.1, range=1:50; this call has the default learning_rate, the default ",
    ):
        check_grid_folder(out, "one", {})
    with pytest.raises(RunFolderError, match="with settings range=1:50; this call has range=1:60; give another"):
        check_grid_folder(out, "one", {"lr": 0.1, "range": "1:60"})
    (out / "grid.json").write_text("[1]")
    with pytest.raises(RunFolderError, match="is not as OPERA wrote it"):
        check_grid_folder(out, "one", {})


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.core.locks.PATIENCE", 0.0)
    with opened_grid(tmp_path, "one", {}, planned(tmp_path, methods=["ft"], seeds=[0])):
        message = f"process {os.getpid()} on .* runs this grid; wait until"
        before = (tmp_path / "grid.json").read_text()
        with (
            pytest.raises(RunFolderError, match=message),
            opened_grid(tmp_path, "one", {}, planned(tmp_path, methods=["dp"], seeds=[0])),
        ):
            pass
        assert (tmp_path / "grid.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["grid.json"]
    with opened_grid(tmp_path, "one", {}, []):
        pass
