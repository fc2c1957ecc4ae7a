"""``run.json`` and ``grid.json`` are written and read by typed records; other formats are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opera.core.errors import RunFolderError
from opera.experiments.analysis import find_runs
from opera.runs.folder import Run, RunWriter, holds_run
from opera.runs.housekeeping import check_out_folder
from opera.runs.record import FORMAT, GridRecord, RunRecord, grid_in

VALUES: dict[str, Any] = {
    "status": "finished",
    "started": "2026-01-01T00:00:00+00:00",
    "identity": {"method": "ft", "range": [10, 100], "lag": None},
    "data": {"source": "my-data", "fingerprint": "ab", "counts": {"documents": 3}, "notes": ["merged 2 rows"]},
    "model": {"source": "minilm", "fingerprint": "cd", "parameters": 22},
    "device": "cpu (2 threads)",
    "processes": 1,
    "seed": 0,
    "settings": {"method": "ft", "learning_rate": 0.01, "max_query_length": None},
    "versions": {"python": "3.11"},
    "seconds": {"load": 1.5},
    "training": {
        "steps": 10, "resumed_from": 4, "best_step": 8, "best_value": 0.5, "evaluations": [(4, 0.4), (8, 0.5)], "lag": 1
    },
}  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = RunRecord(**VALUES)
    RunWriter(tmp_path).write_record(record)
    run = Run.open(tmp_path)
    assert run.record == record
    assert json.loads((tmp_path / "run.json").read_text())["format"] == FORMAT
    assert run.finished
    assert run.training.evaluations == [(4, 0.4), (8, 0.5)]
    assert run.settings == VALUES["settings"]


@pytest.mark.parametrize(("number", "shown"), [(None, "1"), (4, "4"), (6, "6")])
def test_other_formats_are_refused_but_may_be_overwritten(tmp_path: Path, number: int | None, shown: str) -> None:
    values = VALUES if number is None else {**VALUES, "format": number}
    (tmp_path / "run.json").write_text(json.dumps(values))
    expected = rf"was written by another version of OPERA \(format {shown}; this one reads {FORMAT}\)"
    with pytest.raises(RunFolderError, match=expected):
        _ = Run.open(tmp_path).record
    with pytest.raises(RunFolderError, match=expected):
        find_runs(tmp_path)
    assert holds_run(tmp_path)
    check_out_folder(tmp_path, resume=False, overwrite=True)


def test_a_grids_record_that_is_written_is_read(tmp_path: Path) -> None:
    record = GridRecord(model="modèle", settings={"learning_rate": 0.1, "range": [1, 50]}, cells=["x/ft/steps10/seed0"])
    record.write(tmp_path)
    assert GridRecord.read(tmp_path) == record
    assert grid_in(tmp_path) == record
