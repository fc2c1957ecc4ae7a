"""A run folder: when it is free, what is cleared, and files that are written whole or not at all."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from attacks import Bomb
from grids import write_unfinished_run
from opera.core.errors import RunFolderError
from opera.core.files import unfinished
from opera.data.names import TableSource
from opera.run_folder.folder import Run, holds_run
from opera.run_folder.housekeeping import check_out_folder, new_folder, prepare_folder, replace_run
from opera.run_folder.reading import read_arrays
from opera.run_folder.record import RecordedName


@pytest.fixture
def run(tmp_path) -> Path:
    write_unfinished_run(tmp_path / "run", {"method": "ft"}, "my-data")
    return tmp_path / "run"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class TestCheckOutFolder:
    def test_a_new_or_an_empty_folder_is_free(self, tmp_path):
        for path in (tmp_path, tmp_path / "a" / "b"):
            check_out_folder(path, resume=False, overwrite=False)
            check_out_folder(path, resume=False, overwrite=True)
        assert files(tmp_path) == set()

    def test_a_run_is_resumed_or_overwritten_with_its_model(self, run):
        for name in ("config.json", "1_Pooling/config.json"):
            (run / "model" / name).parent.mkdir(parents=True, exist_ok=True)
            (run / "model" / name).touch()
        check_out_folder(run, resume=True, overwrite=False)
        check_out_folder(run, resume=False, overwrite=True)

    def test_leftovers_of_a_killed_start_are_no_obstacle_and_hidden_files_of_others_are(self, tmp_path):
        unfinished(tmp_path / "run.json").touch()
        check_out_folder(tmp_path, resume=False, overwrite=False)
        (tmp_path / ".model-notes").touch()
        with pytest.raises(RunFolderError, match="is not empty and holds no run"):
            check_out_folder(tmp_path, resume=False, overwrite=True)
        prepare_folder(tmp_path, tmp_path, resume=False)
        assert (tmp_path / ".model-notes").exists()


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_new_run_replaces_opera_files_and_keeps_files_of_others(run, in_one_step, monkeypatch):
    if not in_one_step:
        monkeypatch.setattr("sys.platform", "other")
    for name in (
        "model/model.safetensors",
        "checkpoints/checkpoint-4/x",
        f"{unfinished(run / 'model').name}/x",
        "trial/trace.parquet",
        "mine/model/x",
        "measures.json",
        "notes.txt",
        ".hidden",
    ):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x")
    (run / "report.html").write_bytes(b'<head><meta name="generator" content="OPERA report">')
    run.chmod(0o700)
    new = new_folder(run)
    new.mkdir()
    (new / "half").touch()  # of an earlier call, which was killed
    prepare_folder(run, new, resume=False)
    assert files(new) == set()
    (new / "run.json").write_text("new")
    replace_run(run)
    theirs = {"notes.txt", ".hidden", "mine/model/x"}
    assert {name for name in files(run) if not (run / name).is_dir()} == {"run.json", *theirs}
    assert (run / "run.json").read_text() == "new"
    assert run.stat().st_mode & 0o777 == 0o700
    assert set(run.parent.iterdir()) == {run}
    (run / "report.html").write_text("of the user")
    prepare_folder(run, new, resume=False)
    replace_run(run)
    assert (run / "report.html").exists()


def test_a_run_json_of_others_makes_no_run(tmp_path):
    (tmp_path / "run.json").write_text('{"name": "my experiment"}')
    assert not holds_run(tmp_path)
    with pytest.raises(RunFolderError, match="not a run folder"):
        Run.open(tmp_path)
    with pytest.raises(RunFolderError, match="is not empty and holds no run"):
        check_out_folder(tmp_path, resume=False, overwrite=True)


def test_arrays_of_objects_are_not_unpickled(tmp_path):
    mark = tmp_path / "code-ran"
    np.savez(tmp_path / "x.npz", a=np.array([Bomb(mark)], dtype=object))
    with pytest.raises(RunFolderError):
        read_arrays(tmp_path / "x.npz")
    assert not mark.exists()


def test_tables_in_a_record_of_an_older_version_are_one_string():
    old = (
        "tables:documents=a%20b.csv&pairs.train=p.csv&pairs=q.csv&columns.id=an%20id&encoding=cp1252&skip_bad_rows=true"
    )
    names = TypeAdapter(RecordedName)
    tables = names.validate_python(old)
    assert tables == TableSource(
        pairs=(("train", "p.csv"), ("", "q.csv")),
        documents="a b.csv",
        columns=(("id", "an id"),),
        encoding="cp1252",
        skip_bad_rows=True,
    )
    assert names.validate_json(names.dump_json(tables)) == tables
    assert names.validate_python("example:faq") == "example:faq"
