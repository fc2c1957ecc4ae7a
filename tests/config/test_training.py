"""Settings are one flat list; batch arithmetic is theirs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.config.automatic import Situation, resolve
from opera.config.training import GROUPS, TrainSettings
from opera.core.errors import SettingError


def test_every_setting_has_one_group():
    declared = [name for group in GROUPS.values() for name in group.model_fields]
    assert len(declared) == len(set(declared))
    assert sorted(TrainSettings.model_fields) == sorted(declared) == sorted(dict(TrainSettings()))


def test_values_are_checked_and_come_back():
    values = {"temperature": 0.1, "trainer": {"eval_steps": 5}, "negatives": "hard", "range": "5:50"}
    settings = TrainSettings.parse(values)
    assert settings.evaluates_on_dev
    assert dict(settings) == {**dict(TrainSettings()), **values, "range": (5, 50)}
    assert TrainSettings.parse(dict(settings)) == settings


@given(st.integers(1, 10**6), st.integers(1, 8), st.integers(1, 16))
def test_a_global_batch_is_divided_or_refused(global_batch, accumulation, processes):
    values = {"global_batch_size": global_batch, "trainer": {"gradient_accumulation_steps": accumulation}}
    settings, situation = TrainSettings.parse(values), Situation(5, "large", "cuda", processes)
    if global_batch % (accumulation * processes) == 0:
        assert resolve(settings, situation).queries_per_step(processes) == global_batch
    else:
        with pytest.raises(SettingError, match=f"global_batch_size={global_batch}: does not divide evenly"):
            resolve(settings, situation)
