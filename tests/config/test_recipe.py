"""Recipes: defaults, mistakes and their file format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opera.config.recipe import docs_by_group, make_recipe
from opera.config.yaml import read_recipe
from opera.core.errors import SettingError
from opera.methods import DEFAULT_METHOD


def test_defaults_of_methods_are_the_papers() -> None:
    assert make_recipe({}).method == make_recipe({"method": "Auto"}).method == DEFAULT_METHOD
    recipe = make_recipe({"method": "dp"})
    dp = recipe.method_settings
    assert (dp.alpha_start, dp.alpha_end, dp.r_start) == (2, 5, 0.25)
    assert (dp.beta_start, dp.beta_end, dp.v_start, dp.v_end) == (5, 5, 0.25, 0.5)
    assert (dp.query_score, dp.threshold, dp.update_interval) == ("negative_loss", "global", 1)
    assert make_recipe({"steps": 5, "batch_size": 8, "lr": 0.1}).train.per_device_train_batch_size == 8
    assert make_recipe({"steps": 50}).train.steps_between_checkpoints == 5
    assert make_recipe({"steps": 32_000}).train.steps_between_checkpoints == 500
    assert recipe.train.mask_known_positives is True
    assert make_recipe({"method": "sp"}).method_settings.k == 0.25


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        make_recipe({"method": "dp", "temprature": 0.1, "max_steps": 0, "alpha_start": 0.5, "k": 0.5})
    assert sorted(re.split("[ :]", line)[0] for line in caught.value.lines) == [
        "alpha_start", "max_steps", "setting", "unknown",
    ]  # fmt: skip


def test_a_recipe_is_yaml_1_2(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("method: dp\nnegatives: hard\nrange: 10:50\nlearning_rate: 1e-5\nsoft: false\n")
    made = make_recipe(read_recipe(path))
    assert (made.train.range, made.train.learning_rate, made.method_settings.soft) == ((10, 50), 1e-5, False)


def test_every_setting_says_what_it_does_and_where_its_default_comes_from() -> None:
    docs = [doc for group in docs_by_group().values() for doc in group]
    assert all(doc.help and doc.source and doc.kind for doc in docs)
    assert {"temperature", "warmup_ratio", "max_query_length", "alpha_start", "k"} <= {d.name for d in docs}
