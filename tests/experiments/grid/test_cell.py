"""The process of a cell: it trains, and says how that went."""

from __future__ import annotations

from pathlib import Path

from opera.experiments.grid.cell import run_job
from opera.runs.folder import Run

VALUES = {"method": "ft", "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 8}


def test_a_cell_is_trained_and_keeps_no_checkpoints(beir: Path, static_model: Path, tmp_path: Path) -> None:
    job = {"data": str(beir), "model": str(static_model), "out": str(tmp_path / "cell"), "values": VALUES}
    assert run_job(job) == {}
    run = Run.open(tmp_path / "cell")
    assert run.finished
    assert run.settings["trainer"]["save_steps"] == 2
    assert not (run.path / "checkpoints").exists()
