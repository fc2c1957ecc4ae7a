"""Fields of the trainer's arguments: taken by name and type, and refused where a setting of OPERA's says the same."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformerTrainingArguments

import opera
from opera.config.recipe import make_recipe
from opera.config.trainer_arguments import TAKEN, WITHOUT_EFFECT
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
    assert given.keys() - TAKEN.keys() == {"adam_beta2"}
    assert TAKEN.keys() | WITHOUT_EFFECT <= FIELDS
    assert not TAKEN.keys() & WITHOUT_EFFECT


def test_a_run_takes_and_records_them(beir: Path, static_model: Path, tmp_path: Path) -> None:
    runs = [
        opera.adapt(beir, model=static_model, out=tmp_path / name, trainer=trainer, **SMALL)
        for name, trainer in (("plain", None), ("named", {"run_name": "mine"}), ("other", {"adam_beta2": 0.5}))
    ]
    assert [run.settings["trainer"] for run in runs] == [None, {"run_name": "mine"}, {"adam_beta2": 0.5}]
    assert_same_run(runs[0], runs[1])
    assert runs[1].record.identity == runs[0].record.identity
    assert weights(runs[2]) != weights(runs[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_train_epochs": 3}, "trainer: num_train_epochs: give --epochs, got"),
        ("bf16=true", "trainer: bf16: give --set precision=bf16 or fp16"),
        ("push_to_hub=true", "opera export RUN --push OWNER/NAME"),
        ("hub_token=abc", "a token would be recorded"),
        ({"adam_betta2": 0.9}, "--trainer adam_betta2: the trainer has no such field; did you mean 'adam_beta2'?"),
        ("adam_beta2=many", "--trainer adam_beta2: must be float, got 'many'"),
        ("adam_beta2", "trainer adam_beta2: must be key=value"),
        ([1], "must be fields and values, such as adam_beta2=0.98"),
        ({"neftune_noise_alpha": 5}, "trainer: neftune_noise_alpha: sentence-transformers' models do not say"),
        ({"eval_delay": 9}, "trainer: eval_delay: evaluations begin after eval_steps"),
        ({"parallelism_config": {"a": 1}}, "parallelism_config: is an object"),
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
        ({"deepspeed": "x.json"}, "--trainer deepspeed=x.json: needs the package deepspeed, which is not installed: "),
    ],
)
def test_what_the_trainer_refuses_is_refused_before_anything_is_written(
    given: dict[str, object], message: str, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        opera.adapt(beir, model=static_model, out=tmp_path / "run", trainer=given, **SMALL, eval_steps=3)
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()
