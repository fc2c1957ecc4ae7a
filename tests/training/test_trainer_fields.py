"""Fields of the trainer's arguments: taken by name and type, and refused where a setting of OPERA's says the same."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformerTrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

import opera
from opera.config.recipe import make_recipe
from opera.config.trainer import OURS, READ, WITHOUT_EFFECT
from opera.config.training import TrainSettings
from opera.core.errors import InputError, SettingError
from opera.retrieval.models import load_model
from opera.training.trainer import training_arguments
from small_runs import SMALL, assert_same_run, weights

FIELDS = {field.name for field in fields(SentenceTransformerTrainingArguments)}


def test_everything_that_opera_sets_is_taken(
    static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opera.training import trainer as module

    given: dict[str, object] = {}

    class Seen(SentenceTransformerTrainingArguments):  # type: ignore[misc]
        def __init__(self, **values: object) -> None:
            given.update(values)
            super().__init__(**values)

    monkeypatch.setattr(module, "SentenceTransformerTrainingArguments", Seen)
    train = make_recipe({**SMALL, "warmup_ratio": 0, "trainer": {"adam_beta2": 0.5}}).train
    arguments = training_arguments(train, load_model(static_model, "cpu"), tmp_path)
    assert arguments.adam_beta2 == 0.5
    settings = {*TrainSettings.flat_fields, *READ}
    assert {name for name in given.keys() - settings if not name.startswith(OURS)} == {"adam_beta2"}
    assert settings & FIELDS >= READ.keys()
    for start in (*OURS, *WITHOUT_EFFECT):
        assert any(name.startswith(start) for name in FIELDS), start


def test_a_run_takes_and_records_them(beir: Path, static_model: Path, tmp_path: Path) -> None:
    runs = [
        opera.adapt(beir, model=static_model, out=tmp_path / name, trainer=trainer, **SMALL)
        for name, trainer in (("plain", None), ("named", {"run_name": "mine"}), ("other", {"adam_beta2": 0.5}))
    ]
    passed = {"save_steps": SMALL["save_steps"]}
    assert [run.settings["trainer"] for run in runs] == [
        passed,
        {"run_name": "mine", **passed},
        {"adam_beta2": 0.5, **passed},
    ]
    assert_same_run(runs[0], runs[1])
    assert runs[1].record.identity == runs[0].record.identity
    assert weights(runs[2]) != weights(runs[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_train_epochs": 3}, "trainer: num_train_epochs: OPERA sets this itself"),
        ("hub_token=abc", "trainer: hub_token: OPERA sets this itself"),
        ({"max_steps": 3}, "trainer: max_steps: is a setting: give it as max_steps"),
        ({"adam_betta2": 0.9}, "--trainer adam_betta2: the trainer has no such field; did you mean 'adam_beta2'?"),
        ("adam_beta2=many", "--trainer adam_beta2: must be float, got 'many'"),
        ("adam_beta2", "trainer adam_beta2: must be key=value"),
        ([1], "must be fields and values, such as adam_beta2=0.98"),
        ({"neftune_noise_alpha": 5}, "trainer: neftune_noise_alpha: OPERA sets this itself"),
        ({"eval_delay": 9}, "trainer: eval_delay: OPERA sets this itself"),
        ({"parallelism_config": {"a": 1}}, "parallelism_config: OPERA sets this itself"),
    ],
)
def test_wrong_fields_are_refused(given: object, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        make_recipe({"trainer": given})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"adam_beta2": 1.5}, "--trainer adam_beta2: the trainer refuses it: Invalid beta parameter at index 1: 1.5"),
        ({"fsdp": "full_shard"}, "--trainer fsdp: the trainer refuses it: Using fsdp only works in distributed"),
        ({"lr_scheduler_kwargs": {"no_such": 1}}, "--trainer lr_scheduler_kwargs: the trainer refuses it: "),
        ({"deepspeed": "x.json"}, "transformers refuses the settings: "),
    ],
)
def test_what_the_trainer_refuses_is_refused_before_anything_is_written(
    given: dict[str, object], message: str, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        opera.adapt(beir, model=static_model, out=tmp_path / "run", trainer=given, **SMALL, eval_steps=3)
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert not is_deepspeed_zero3_enabled(), "which loading the next model would ask"
