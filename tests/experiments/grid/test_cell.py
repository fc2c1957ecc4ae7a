"""The process of a cell: it trains, or times a few steps, and says how that went."""

from __future__ import annotations

from pathlib import Path

import opera
from opera.experiments.grid.cell import FLOAT_BYTES, run_job, time_cell
from opera.runs.folder import Run

VALUES = {"method": "ft", "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 8}


def test_a_cell_is_trained_and_keeps_no_checkpoints(beir: Path, static_model: Path, tmp_path: Path) -> None:
    job = {"data": str(beir), "model": str(static_model), "out": str(tmp_path / "cell"), "values": VALUES}
    assert run_job(job) == {}
    run = Run.open(tmp_path / "cell")
    assert run.finished
    assert run.settings["trainer"]["save_steps"] == 2
    assert not (run.path / "checkpoints").exists()


def test_a_cell_is_timed_with_its_own_trainings(beir: Path, static_model: Path) -> None:
    data, values = opera.load_data(beir), {"per_device_train_batch_size": 4, "max_steps": 100}
    once, twice = (time_cell(data, str(static_model), {**values, "guard": guard}) for guard in (False, True))
    assert once.per_step > 0
    assert once.encoding > 0
    assert twice.overhead > once.overhead > 0
    weights = next(static_model.rglob("model.safetensors")).stat().st_size
    assert 0.9 * weights < once.model_bytes <= weights
    assert once.model_bytes % FLOAT_BYTES == 0
