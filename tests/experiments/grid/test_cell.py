"""The process of a cell: it trains, or times a few steps, and says how that went."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import opera
from opera.core.errors import SettingError
from opera.experiments.grid import cell
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


@pytest.mark.parametrize(
    ("error", "reason", "printed"),
    [
        (SettingError("k: must be 1"), "k: must be 1", "opera: error: k: must be 1\n"),
        (OSError(28, "No space left", "x"), "x: no space left", "opera: error: x: no space left\n"),
        (KeyError("k"), "KeyError: 'k'", "Traceback (most recent call last)"),
    ],
)
def test_a_failure_is_a_message(
    error: Exception, reason: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(source: str) -> None:
        raise error

    monkeypatch.setattr(cell, "load_data", fail)
    blamed = {"input": True} if isinstance(error, SettingError) else {}
    assert run_job({"data": "x"}) == {"failed": reason} | blamed
    assert capsys.readouterr().err.startswith(printed)


def test_a_cell_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input stays open as long as the parent lives; lines that arrive are no end."""
    news = iter([b"a", b"line", b""])
    monkeypatch.setattr(os, "read", lambda file, most: next(news))
    monkeypatch.setattr(os, "_exit", lambda status: ended.append(status))
    ended: list[int] = []
    cell.end_with_parent()
    assert (ended, list(news)) == ([1], [])


def test_a_cell_is_timed_with_its_own_trainings(beir: Path, static_model: Path) -> None:
    data, values = opera.load_data(beir), {"per_device_train_batch_size": 4, "max_steps": 100}
    once, twice = (time_cell(data, str(static_model), {**values, "guard": guard}) for guard in (False, True))
    assert once.per_step > 0
    assert once.encoding > 0
    assert twice.overhead > once.overhead > 0
    weights = next(static_model.rglob("model.safetensors")).stat().st_size
    assert 0.9 * weights < once.model_bytes <= weights
    assert once.model_bytes % FLOAT_BYTES == 0
