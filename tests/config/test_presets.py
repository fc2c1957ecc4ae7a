"""Presets: what the paper's text and the authors' release train with, unless the user says otherwise."""

from __future__ import annotations

import pytest

from opera.config.automatic import Situation, resolve
from opera.config.recipe import PRESETS, make_recipe
from opera.methods import METHODS


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_a_preset_fits_every_method(preset: str, method: str) -> None:
    flat = make_recipe({"preset": preset, "method": method}).flat()
    assert flat["preset"] == preset
    assert (flat["max_steps"], flat["learning_rate"]) == (32_000, 1e-6)
    assert (flat["temperature"], flat["mask_known_positives"], flat["guard"]) == (0.02, False, False)
    own = PRESETS[preset].keys() & METHODS[method].settings_class.model_fields
    assert all(flat[name] == PRESETS[preset][name] for name in own)


def test_the_release_warms_up_and_decays_weights_and_has_twice_the_papers_batch() -> None:
    for preset, expected in (("paper", (0, None, 64)), ("release", (0.05, {"weight_decay": 0.01}, 128))):
        recipe = make_recipe({"preset": preset, "method": "ft"})
        settings = resolve(recipe.train, Situation(2590, "large", "cuda"))
        assert (settings.warmup_ratio, settings.trainer, settings.queries_per_step(1)) == expected


def test_what_is_given_overrides_the_preset() -> None:
    given = {"temperature": 0.1, "lr": 1e-3, "steps": 50, "query_score": "negative_loss"}
    flat = make_recipe({"preset": "paper", **given}).flat()
    assert (flat["temperature"], flat["learning_rate"], flat["max_steps"]) == (0.1, 1e-3, 50)
    assert flat["query_score"] == "negative_loss"
    by_device = make_recipe({"preset": "paper", "batch_size": 16}).flat()
    assert (by_device["per_device_train_batch_size"], by_device["global_batch_size"]) == (16, None)
    by_epochs = make_recipe({"preset": "paper", "epochs": 2}).flat()
    assert (by_epochs["epochs"], by_epochs["max_steps"]) == (2, None)
