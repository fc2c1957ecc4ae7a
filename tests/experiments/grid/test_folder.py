"""The grid's folder: what is refused, and the lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grids import finish_cell, planned
from opera.core.errors import RunFolderError
from opera.experiments.grid import compare
from opera.experiments.grid.compare import grid_record, opened_grid, write_grid_file


def check_grid_folder(out: Path, model: str, settings: dict[str, Any]) -> None:
    compare.check_grid_folder(out, grid_record(out, model, settings))


def test_a_grid_of_another_model_or_settings_is_refused_once_something_ran(tmp_path: Path) -> None:
    out = tmp_path / "grid"
    write_grid_file(out, grid_record(out, "one", {"lr": 0.1, "range": "1:50"}))
    check_grid_folder(out, "two", {})
    finish_cell(planned(out)[0])
    check_grid_folder(out, "one", {"learning_rate": 0.1, "range": "1:50"})
    for model, settings in (("two", {"lr": 0.1, "range": "1:50"}), ("one", {}), ("one", {"lr": 0.1, "range": "1:60"})):
        with pytest.raises(RunFolderError, match="holds a grid with"):
            check_grid_folder(out, model, settings)


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.core.locks.PATIENCE", 0.0)
    first, second = (
        grid_record(tmp_path, "one", {}, planned(tmp_path, methods=[method], seeds=[0])) for method in ("ft", "dp")
    )
    with opened_grid(tmp_path, first):
        before = (tmp_path / "grid.json").read_text()
        with pytest.raises(RunFolderError, match="runs this grid; wait until"), opened_grid(tmp_path, second):
            pass
        assert (tmp_path / "grid.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["grid.json"]
