"""The process of a cell: it trains, or times a few steps, and says how that went."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import opera
from opera.config.recipe import make_recipe
from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.experiments.grid import cell
from opera.experiments.grid.cell import FLOAT_BYTES, TIMED_SETTINGS, StopWhenSlow, run_job, time_cell
from opera.runs.folder import Run
from opera.training_set.prepare import load_and_check

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


def test_a_cell_is_timed_by_plain_fine_tuning_and_leaves_nothing(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TrainSettings.flat_fields.keys() >= TIMED_SETTINGS
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recipes: list[Any] = []
    monkeypatch.setattr(cell, "make_recipe", lambda values: recipes.append(make_recipe(values)) or recipes[-1])
    values = {"method": "sp", "k": 0.5, "noise": "hard", "noise_share": 0.3, "negatives": "hard", "range": "1:50"}
    data = opera.load_data(beir)
    cost = time_cell(data, str(static_model), {**values, "max_steps": 500, "per_device_train_batch_size": 4})
    settings = recipes[0].flat()  # the second is the cell's own
    assert (settings["method"], settings["negatives"], settings["noise"]) == ("ft", "random", "none")
    assert (settings["max_steps"], settings["per_device_train_batch_size"]) == (cell.STEPS, 4)
    assert cost.per_step > 0
    assert cost.overhead > cost.encoding > 0
    weights = next(static_model.rglob("model.safetensors")).stat().st_size
    assert 0.9 * weights < cost.model_bytes <= weights
    assert cost.model_bytes % FLOAT_BYTES == 0
    adapter = time_cell(data, str(static_model), {"adapter": "query", "per_device_train_batch_size": 4})
    assert (adapter.per_step > 0, adapter.encoding > 0, adapter.model_bytes) == (True, True, cost.model_bytes)
    assert not list(tmp_path.iterdir())


def test_the_guard_is_timed_with_the_rest(
    beir: Path, static_model: Path, bert_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell, "GUARD_DOCUMENTS", 100)
    data = opera.load_data(beir)
    expected = {(static_model, True): 2 + 8, (static_model, False): 1, (bert_model, True): 2 + 4 * 100 / 120}
    for (model, guard), encodings in expected.items():
        prepared = load_and_check(data, str(model), make_recipe({"guard": guard}))
        assert cell._encodings_after(prepared) == pytest.approx(encodings)
    for values, trainings in (({"max_steps": 200}, 2), ({"max_steps": 201}, 1), ({"max_steps": 9, "eval_steps": 4}, 1)):
        assert cell._trainings(prepared, values) == trainings


@pytest.mark.parametrize(("seconds", "step", "stops"), [(16, 3, True), (16, 2, False), (14, 12, False)])
def test_a_slow_model_is_stopped_after_a_few_steps(
    seconds: float, step: int, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(cell, "time", SimpleNamespace(monotonic=lambda: clock.now))
    callback, control = StopWhenSlow(), SimpleNamespace(should_training_stop=False)
    clock.now += seconds
    callback.on_step_end(None, SimpleNamespace(global_step=step), control)
    assert control.should_training_stop is stops
