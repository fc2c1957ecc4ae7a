"""A run folder: when it is free, what is cleared, and files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from grids import write_unfinished_run
from opera.core.errors import RunFolderError, StorageError
from opera.core.files import unfinished
from opera.runs.folder import REPORT_MARK, Run, RunWriter, holds_run
from opera.runs.housekeeping import (
    check_out_folder,
    clear_leftovers,
    clear_run,
)


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

    def test_a_run_is_resumed_or_overwritten_and_nothing_else(self, run: Path) -> None:
        check_out_folder(run, resume=True, overwrite=False)
        check_out_folder(run, resume=False, overwrite=True)
        with pytest.raises(RunFolderError, match="holds a run; pass --resume to continue it, --overwrite"):
            check_out_folder(run, resume=False, overwrite=False)
        (run / "model").mkdir()
        for name in ("config.json", "1_Pooling/config.json", "notes.txt"):
            check_out_folder(run, resume=False, overwrite=True)
            (run / "model" / name).parent.mkdir(exist_ok=True)
            (run / "model" / name).touch()
        check_out_folder(run, resume=True, overwrite=False)
        with pytest.raises(RunFolderError, match=r"would delete .*model/notes\.txt, which OPERA did not write"):
            check_out_folder(run, resume=False, overwrite=True)

    def test_leftovers_of_a_killed_start_are_no_obstacle_and_hidden_files_of_others_are(self, tmp_path: Path) -> None:
        unfinished(tmp_path / "run.json").touch()
        check_out_folder(tmp_path, resume=False, overwrite=False)
        for name in (".model-notes", ".old-data.csv", ".opera-a1b2", ".run.json-0123456789ABCDEF"):
            (tmp_path / name).touch()
            with pytest.raises(RunFolderError, match="is not empty and holds no run"):
                check_out_folder(tmp_path, resume=False, overwrite=True)
            clear_leftovers(tmp_path)
            (tmp_path / name).unlink()


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
    (run / "checkpoints" / "mine.txt").write_text("x")
    theirs = {"notes.txt", ".hidden", "mine/model/x", "checkpoints/mine.txt"}
    clear_run(run)
    assert {name for name in files(run) if not (run / name).is_dir()} == theirs
    assert not (run / "trial").exists()
    (run / "report.html").write_text("of the user")
    clear_run(run)  # nothing left to remove
    assert (run / "report.html").exists()


def test_the_model_is_replaced_whole(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    writer.write_model(lambda folder: (folder / "old.txt").write_text("1"))  # type: ignore[arg-type, return-value]
    writer.write_model(lambda folder: (folder / "new.txt").write_text("2"))  # type: ignore[arg-type, return-value]
    assert files(tmp_path) == {"model", "model/new.txt"}
    assert writer.model_path.stat().st_mode & 0o777 == 0o755

    def fail(folder: Path) -> None:
        (folder / "half.txt").write_text("3")
        raise OSError("the disk is full")

    with pytest.raises(StorageError, match="cannot be written: the disk is full"):
        writer.write_model(fail)
    assert files(tmp_path) == {"model", "model/new.txt"}


def test_a_trace_without_steps_can_be_read(tmp_path: Path) -> None:
    RunWriter(tmp_path).write_trace([])
    assert Run(tmp_path).trace().column_names == ["step"]
    RunWriter(tmp_path).write_trace([{"step": 1, "loss": 2, "alpha": None}])
    table = Run(tmp_path).trace()
    assert table.to_pylist() == [{"step": 1, "loss": 2.0, "alpha": None}]
    assert [str(kind) for kind in table.schema.types] == ["int64", "double", "double"]


def test_a_run_is_printed_in_a_line(run: Path) -> None:
    assert repr(Run.open(run)) == f"Run('{run}', running)"
    (run / "run.json").write_text("{}")
    assert repr(Run(run)) == f"Run('{run}', cannot be read)"


def test_a_run_json_of_others_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name": "my experiment"}')
    assert not holds_run(tmp_path)
    with pytest.raises(RunFolderError, match="not a run folder"):
        Run.open(tmp_path)
    with pytest.raises(RunFolderError, match="is not empty and holds no run"):
        check_out_folder(tmp_path, resume=False, overwrite=True)
