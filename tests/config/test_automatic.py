"""Settings are one flat list; automatic values follow the data, the model and the device; given ones stay."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.config.automatic import AUTOMATIC, DEFAULTS, Situation, resolve
from opera.config.training import GROUPS, TrainSettings
from opera.core.errors import SettingError

KINDS = ["adapter", "static", "small", "large"]
counts = st.integers(1, 10**7)


@given(counts, st.sampled_from(KINDS), st.sampled_from(["cpu", "cuda", "mps"]), st.integers(1, 16))
def test_every_automatic_value_becomes_a_number(queries, kind, device, processes):
    settings = resolve(TrainSettings(), Situation(queries, kind, device, processes))
    flat, defaults = dict(settings), DEFAULTS[kind]
    assert all(flat[name] is not None for name in AUTOMATIC)
    assert defaults.least_steps <= flat["max_steps"] <= max(defaults.most_steps.values())
    assert settings.queries_per_pass(processes) < min(defaults.queries_per_batch, queries) + processes
    for name in AUTOMATIC:  # each within its own bounds, as resuming checks it
        assert TrainSettings.parse({name: flat[name]})


@given(counts, st.floats(0.01, 50), st.integers(1, 300), st.integers(1, 4), st.integers(1, 4))
def test_an_epoch_draws_every_query_once(queries, epochs, batch, accumulation, processes):
    trainer = {"gradient_accumulation_steps": accumulation}
    settings = TrainSettings.parse({"epochs": epochs, "per_device_train_batch_size": batch, "trainer": trainer})
    resolved = resolve(settings, Situation(queries, "static", "cpu", processes))
    per_epoch = math.ceil(queries / (batch * accumulation * processes))
    assert resolved.max_steps == math.ceil(epochs * per_epoch)
    assert resolved.epochs == epochs


def test_the_page_has_the_numbers():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    page = page.partition("## Automatic settings")[2].partition("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")
    ]
    told = {
        name.split("`")[0]: [float(value) for value in values] for name, *values in rows if values[-1][:1].isdigit()
    }
    columns = [DEFAULTS[kind] for kind in ("static", "adapter", "small", "large")]
    names = ("temperature", "learning_rate", "warmup_ratio", "epochs")
    expected = {name: [getattr(defaults, name) for defaults in columns] for name in names}
    assert told == expected | {"per_device_train_batch_size": [defaults.queries_per_batch for defaults in columns]}
    limits = {
        "minimum steps": [kind.least_steps for kind in columns],
        "maximum steps, CPU": [kind.most_steps["cpu"] for kind in columns],
        "maximum steps, GPU": [kind.most_steps["cuda"] for kind in columns],
    }
    for name, steps in limits.items():
        assert f"| {name} | {' | '.join(f'{count:,}' for count in steps)} |" in page


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


@pytest.mark.parametrize(("known", "rate"), [(0.0, 3e-3), (0.2, 3e-3), (0.25, 1e-2), (1.0, 1e-2)])
def test_a_static_model_learns_slower_for_new_documents(known, rate):
    for kind, expected in (("static", rate), ("adapter", 3e-3), ("small", 1e-4)):
        situation = Situation(500, kind, "cpu", known_documents=known)
        assert resolve(TrainSettings(), situation).learning_rate == expected
    assert resolve(TrainSettings.parse({"learning_rate": 0.02}), Situation(5, "static", "cpu")).learning_rate == 0.02
