"""What a cell costs, timed on a few real steps."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import opera
from opera.config.recipe import make_recipe
from opera.config.training import TrainSettings
from opera.experiments.grid import timing
from opera.experiments.grid.timing import FLOAT_BYTES, TIMED_SETTINGS, StopWhenSlow, time_cell
from opera.training_set.prepare import load_and_check


def test_the_settings_that_decide_a_steps_time_are_settings_of_training() -> None:
    assert TrainSettings.flat_fields.keys() >= TIMED_SETTINGS


def test_a_cell_is_timed_by_plain_fine_tuning_and_leaves_nothing(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recipes = []
    make_recipe = timing.make_recipe

    def recorded(values: Any) -> Any:
        recipes.append(make_recipe(values))
        return recipes[-1]

    monkeypatch.setattr(timing, "make_recipe", recorded)
    values = {"method": "sp", "k": 0.5, "noise": "hard", "noise_share": 0.3, "negatives": "hard", "range": "1:50"}
    cost = time_cell(
        opera.load_data(beir), str(static_model), {**values, "max_steps": 500, "per_device_train_batch_size": 4}
    )
    recipe, _ = recipes  # the second is the cell's own
    settings = recipe.flat()
    assert (settings["method"], settings["negatives"], settings["noise"]) == ("ft", "random", "none")
    assert (settings["max_steps"], settings["per_device_train_batch_size"]) == (timing.STEPS, 4)
    assert cost.per_step > 0
    assert cost.overhead > cost.encoding > 0
    weights = next(static_model.rglob("model.safetensors")).stat().st_size
    assert 0.9 * weights < cost.model_bytes <= weights
    assert cost.model_bytes % FLOAT_BYTES == 0
    assert not list(tmp_path.iterdir())


def test_the_guard_is_timed_with_the_rest(
    beir: Path, static_model: Path, bert_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "GUARD_DOCUMENTS", 100)
    data = opera.load_data(beir)
    expected = {(static_model, True): 2 + 8, (static_model, False): 1, (bert_model, True): 2 + 4 * 100 / 120}
    for (model, guard), encodings in expected.items():
        prepared = load_and_check(data, str(model), make_recipe({"guard": guard}))
        assert timing._encodings_after(prepared) == pytest.approx(encodings)


def test_the_cells_own_steps_decide_how_often_it_trains(beir: Path, bert_model: Path) -> None:
    timed = load_and_check(opera.load_data(beir), str(bert_model), make_recipe({"max_steps": timing.STEPS}))
    own: tuple[tuple[dict[str, Any], int], ...] = (
        ({"max_steps": 200}, 2),
        ({"max_steps": 201}, 1),
        ({"max_steps": 200, "eval_steps": 100}, 1),
    )
    for values, trainings in own:
        assert timing._trainings(timed, values) == trainings


def test_a_cell_of_an_adapter_is_timed(beir: Path, static_model: Path) -> None:
    whole, adapter = (
        time_cell(opera.load_data(beir), str(static_model), {"adapter": kind, "per_device_train_batch_size": 4})
        for kind in (None, "query")
    )
    assert adapter.per_step > 0
    assert adapter.encoding > 0
    assert adapter.model_bytes == whole.model_bytes


@pytest.mark.parametrize(("seconds", "step", "stops"), [(16, 3, True), (16, 2, False), (14, 3, False), (14, 12, False)])
def test_a_slow_model_is_stopped_after_a_few_steps(
    seconds: float, step: int, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: clock.now))
    callback, control = StopWhenSlow(), SimpleNamespace(should_training_stop=False)
    callback.on_train_begin(None, None, control)
    clock.now += seconds
    callback.on_step_end(None, SimpleNamespace(global_step=step), control)
    assert control.should_training_stop is stops
