"""A grid's folder: the runs that it refuses, and the lock."""

import pytest

from grids import ONE, finish_planned, planned
from opera.core.cache import sole_use
from opera.core.errors import RunFolderError
from opera.experiments.compare import prepare_grid
from opera.experiments.grid import Grid, train_grid


def test_a_run_with_another_model_or_other_settings_is_refused(tmp_path, beir, static_model, bert_model):
    out = tmp_path / "grid"
    (cell,) = planned(
        out, data=[str(beir)], methods=["ft"], seeds=[0], values={"lr": 0.1, "range": "1:50", "negatives": "hard"}
    )
    finish_planned(cell, static_model)
    same = {"learning_rate": 0.1, "range": (1, 50), "negatives": "hard"}
    assert prepare_grid([str(beir)], out, str(static_model), same, **ONE).done == {cell.folder}
    for name, value in (("learning_rate", 0.2), ("range", "1:60")):
        with pytest.raises(RunFolderError, match=f"started differently; pass another --out:\n{name}: the run has"):
            prepare_grid([str(beir)], out, str(static_model), {**same, name: value}, **ONE)
    with pytest.raises(RunFolderError, match="model_fingerprint: the run has"):
        prepare_grid([str(beir)], out, str(bert_model), same, **ONE)


def test_a_run_is_no_place_for_a_grid(trained, beir, static_model):
    with pytest.raises(RunFolderError, match="is a run; pass an empty or new folder"):
        prepare_grid([str(beir)], trained.path, str(static_model), {}, **ONE)


def test_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("opera.core.cache.PATIENCE", 0.0)
    grid = Grid(tmp_path, "model", planned(tmp_path))
    with sole_use(tmp_path, "runs this grid"), pytest.raises(RunFolderError, match="runs this grid; wait until"):
        train_grid(grid)
    assert not grid.failed
