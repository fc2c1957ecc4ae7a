"""A run folder: when it is free, what is cleared, and files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attacks import Bomb
from grids import write_unfinished_run
from opera.core.errors import RunFolderError
from opera.core.files import unfinished
from opera.run_folder.folder import REPORT_MARK, Run, holds_run
from opera.run_folder.housekeeping import check_out_folder, clear_leftovers, clear_run
from opera.run_folder.reading import read_arrays


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_unfinished_run(tmp_path / "run", {"method": "ft"}, "my-data")
    return tmp_path / "run"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class TestCheckOutFolder:
    def test_a_new_or_an_empty_folder_is_free(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "a" / "b"):
            check_out_folder(path, resume=False, overwrite=False)
            check_out_folder(path, resume=False, overwrite=True)
        assert files(tmp_path) == set()

    def test_a_run_is_resumed_or_overwritten_with_its_model(self, run: Path) -> None:
        for name in ("config.json", "1_Pooling/config.json"):
            (run / "model" / name).parent.mkdir(parents=True, exist_ok=True)
            (run / "model" / name).touch()
        check_out_folder(run, resume=True, overwrite=False)
        check_out_folder(run, resume=False, overwrite=True)

    def test_leftovers_of_a_killed_start_are_no_obstacle_and_hidden_files_of_others_are(self, tmp_path: Path) -> None:
        unfinished(tmp_path / "run.json").touch()
        check_out_folder(tmp_path, resume=False, overwrite=False)
        (tmp_path / ".model-notes").touch()
        with pytest.raises(RunFolderError, match="is not empty and holds no run"):
            check_out_folder(tmp_path, resume=False, overwrite=True)
        clear_leftovers(tmp_path)
        assert (tmp_path / ".model-notes").exists()


def test_clearing_a_run_keeps_files_of_others(run: Path) -> None:
    for name in (
        "model/model.safetensors",
        "checkpoints/checkpoint-4/x",
        f"{unfinished(run / 'model').name}/x",
        "trial/trace.parquet",
        "mine/model/x",
    ):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x")
    for name in ("measures.json", "notes.txt", ".hidden"):
        (run / name).write_text("x")
    (run / "report.html").write_bytes(b"<head>" + REPORT_MARK)
    theirs = {"notes.txt", ".hidden", "mine/model/x"}
    clear_run(run)
    assert {name for name in files(run) if not (run / name).is_dir()} == theirs
    assert not (run / "trial").exists()
    (run / "report.html").write_text("of the user")
    clear_run(run)  # nothing left to remove
    assert (run / "report.html").exists()


def test_a_run_json_of_others_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name": "my experiment"}')
    assert not holds_run(tmp_path)
    with pytest.raises(RunFolderError, match="not a run folder"):
        Run.open(tmp_path)
    with pytest.raises(RunFolderError, match="is not empty and holds no run"):
        check_out_folder(tmp_path, resume=False, overwrite=True)


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "code-ran"
    np.savez(tmp_path / "x.npz", a=np.array([Bomb(mark)], dtype=object))
    with pytest.raises(RunFolderError):
        read_arrays(tmp_path / "x.npz")
    assert not mark.exists()
