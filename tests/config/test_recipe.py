"""Recipes: defaults, mistakes and their file format."""

import re

import pytest

from opera.config.recipe import docs_by_group, make_recipe
from opera.core.errors import SettingError
from opera.methods import DEFAULT_METHOD, METHODS, Settings, setting
from opera.methods.finetuning import FineTuning


def test_a_recipe_has_short_names_and_values_that_follow_from_others():
    assert make_recipe({}).method == make_recipe({"method": "Auto"}).method == DEFAULT_METHOD
    assert make_recipe({"steps": 5, "batch_size": 8, "lr": 0.1}).train.per_device_train_batch_size == 8
    assert make_recipe({"steps": 50}).train.steps_between_checkpoints == 5
    assert make_recipe({"steps": 32_000}).train.steps_between_checkpoints == 500


def test_all_mistakes_are_told_at_once():
    with pytest.raises(SettingError) as caught:
        make_recipe({"method": "dp", "temprature": 0.1, "max_steps": 0, "alpha_start": 0.5, "k": 0.5})
    assert sorted(re.split("[ :]", line)[0] for line in caught.value.lines) == [
        "alpha_start", "max_steps", "setting", "unknown",
    ]  # fmt: skip


def test_every_setting_says_what_it_does_and_where_its_default_comes_from():
    docs = [doc for group in docs_by_group().values() for doc in group]
    assert all(doc.help and doc.source and doc.kind for doc in docs)
    assert {"temperature", "warmup_ratio", "max_query_length", "alpha_start", "k"} <= {d.name for d in docs}


def test_a_setting_of_a_method_must_not_have_the_name_of_one_of_training(monkeypatch):
    class Taken(Settings):
        temperature: float = setting(1.0, "of the method", "test")

    class TakesTemperature(FineTuning):
        name = "takes"
        settings_class = Taken

    monkeypatch.setitem(METHODS, "takes", TakesTemperature)
    with pytest.raises(SettingError, match="method takes: its setting 'temperature'"):
        make_recipe({"temperature": 0.1})
