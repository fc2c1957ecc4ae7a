"""The grid's folder: what is refused, what is recorded, and the lock."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from grids import finish_cell, planned
from opera.core.errors import RunFolderError
from opera.experiments.grid import compare as folder
from opera.experiments.grid.compare import grid_record
from opera.runs.record import GridRecord


def check_grid_folder(out: Path, *given: Any, **more: Any) -> None:
    folder.check_grid_folder(out, grid_record(out, *given, **more))


def write_grid_file(out: Path, *given: Any, **more: Any) -> None:
    folder.write_grid_file(out, grid_record(out, *given, **more))


def opened_grid(out: Path, *given: Any, shard: str | None = None) -> AbstractContextManager[None]:
    return folder.opened_grid(out, grid_record(out, *given), shard)


def test_a_grid_of_another_model_or_settings_is_refused_once_something_ran(tmp_path: Path) -> None:
    out = tmp_path / "grid"
    write_grid_file(out, "one", {"lr": 0.1, "range": (1, 50)})
    check_grid_folder(out, "two", {})
    (cell, *_) = planned(out)
    finish_cell(cell)
    check_grid_folder(out, "one", {"learning_rate": 0.1, "range": [1, 50]})
    check_grid_folder(out, "one", {"learning_rate": 0.1, "range": "1:50"})
    with pytest.raises(RunFolderError, match="holds a grid with model 'one', this call has 'two'"):
        check_grid_folder(out, "two", {"lr": 0.1, "range": (1, 50)})
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


def test_the_cells_of_all_calls_are_kept(tmp_path: Path) -> None:
    for methods in (["ft", "dp"], ["dp", "sp"]):
        write_grid_file(tmp_path, "one", {}, planned(tmp_path, methods=methods, seeds=[0]))
    assert [cell.split("/")[1] for cell in GridRecord.read(tmp_path).cells] == ["ft", "dp", "sp"]


def test_shards_run_at_the_same_time_and_never_beside_the_whole_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opera.core.locks.PATIENCE", 0.0)
    cells = planned(tmp_path)
    opened = partial(opened_grid, tmp_path, "one", {}, cells)
    with opened(shard="1-of-2"), opened(shard="2-of-2"):
        assert GridRecord.read(tmp_path).cells == [str(cell.folder.relative_to(tmp_path)) for cell in cells]
        with pytest.raises(RunFolderError, match="runs this part of the grid"), opened(shard="1-of-2"):
            pass
        with pytest.raises(RunFolderError, match="runs this part of the grid"), opened():
            pass
    with opened(), pytest.raises(RunFolderError, match="runs this grid"), opened(shard="1-of-2"):
        pass
    with opened():
        pass


def test_shards_may_start_at_the_same_moment(tmp_path: Path) -> None:
    """Threads stand for processes: a lock belongs to an open file, and each opens its own."""
    shards, together = 6, Barrier(6)

    def run(number: int, out: Path) -> None:
        together.wait()
        cells = planned(out, methods=["ft"], seeds=[number])
        with opened_grid(out, "one", {}, cells, shard=f"{number + 1}-of-{shards}"):
            together.wait()

    for attempt in range(3):
        out = tmp_path / str(attempt)
        with ThreadPoolExecutor(shards) as pool:
            for done in [pool.submit(run, number, out) for number in range(shards)]:
                done.result()
        assert {cell.split("/")[-1] for cell in GridRecord.read(out).cells} == {
            f"seed{number}" for number in range(shards)
        }
        assert {path.name for path in out.iterdir()} == {"grid.json", ".shards"}


def test_a_shard_of_another_grid_is_refused_though_nothing_has_run(tmp_path: Path) -> None:
    with opened_grid(tmp_path, "one", {}, [], shard="1-of-2"):
        with (
            pytest.raises(RunFolderError, match="holds a grid with model 'one'"),
            opened_grid(tmp_path, "two", {}, [], shard="2-of-2"),
        ):
            pass
        assert GridRecord.read(tmp_path).model == "one"


def test_data_sets_keep_settings_of_their_own(tmp_path: Path) -> None:
    write_grid_file(tmp_path, "one", {}, data={"x": {"range": "10:100"}})
    write_grid_file(tmp_path, "one", {}, data={"y": {"range": "10:200"}})
    (cell, *_) = planned(tmp_path)
    finish_cell(cell)
    check_grid_folder(tmp_path, "one", {}, data={"x": {"range": [10, 100]}, "z": {"range": "1:5"}})
    with pytest.raises(RunFolderError, match="with settings range=10:200 on y; this call has range=10:100; give"):
        check_grid_folder(tmp_path, "one", {}, data={"y": {"range": "10:100"}})
