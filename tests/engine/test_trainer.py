"""The trainer: dev evaluations, fields of its arguments, losses and weights that are no numbers, memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformerTrainingArguments
from transformers import EarlyStoppingCallback, TrainerCallback
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

import opera
from opera.config.recipe import make_recipe
from opera.config.trainer import OURS, READ, WITHOUT_EFFECT
from opera.config.training import TrainSettings
from opera.core.errors import InputError, TrainingError
from opera.engine import trainer
from opera.engine.checkpoint import is_complete
from opera.engine.loss import InfoNCELoss
from opera.engine.trainer import OperaTrainer, training_arguments
from opera.retrieval.models import load_model
from small_runs import SMALL, InterruptedAt, assert_same_run, weights

FIELDS = {field.name for field in fields(SentenceTransformerTrainingArguments)}


@pytest.mark.slow
def test_early_stopping_and_the_best_model_survive_a_resume(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    folder = make_beir(dev=True)
    settings = {
        "max_steps": 400,
        "per_device_train_batch_size": 16,
        "learning_rate": 0.05,
        "temperature": 0.1,
        "eval_steps": 10,
        "load_best_model_at_end": True,
        "callbacks": [EarlyStoppingCallback(3)],
    }
    whole = opera.adapt(folder, model=static_model, out=tmp_path / "whole", **settings)
    stopped = whole.training
    assert stopped.best_step <= stopped.steps < 400
    assert stopped.best_value > 0
    assert len(whole.trace()) == stopped.steps
    with interrupted_at(stopped.steps - 4):
        opera.adapt(folder, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == stopped.steps - 10
    for fact in ("steps", "best_step", "best_value"):
        assert getattr(resumed.training, fact) == getattr(stopped, fact)
    assert_same_run(resumed, whole)


def test_everything_that_opera_sets_is_taken(
    static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}

    class Seen(SentenceTransformerTrainingArguments):  # type: ignore[misc]
        def __init__(self, **values: object) -> None:
            given.update(values)
            super().__init__(**values)

    monkeypatch.setattr(trainer, "SentenceTransformerTrainingArguments", Seen)
    train = make_recipe({**SMALL, "warmup_ratio": 0, "trainer": {"adam_beta2": 0.5}}).train
    arguments = training_arguments(train, load_model(static_model, "cpu"), tmp_path)
    assert arguments.adam_beta2 == 0.5
    settings = {*TrainSettings.model_fields, *READ}
    assert {name for name in given.keys() - settings if not name.startswith(OURS)} == {"adam_beta2"}
    assert settings & FIELDS >= READ.keys()
    for start in (*OURS, *WITHOUT_EFFECT):
        assert any(name.startswith(start) for name in FIELDS), start


def test_a_run_takes_and_records_them(beir: Path, static_model: Path, tmp_path: Path) -> None:
    passed = {"save_steps": SMALL["save_steps"]}
    given: tuple[dict[str, Any], ...] = ({}, {"run_name": "mine"}, {"adam_beta2": 0.5})
    plain, named, other = (
        opera.adapt(beir, model=static_model, out=tmp_path / str(number), trainer=fields or None, guard=False, **SMALL)
        for number, fields in enumerate(given)
    )
    assert [run.settings["trainer"] for run in (plain, named, other)] == [{**fields, **passed} for fields in given]
    assert_same_run(plain, named)
    assert named.record.identity == plain.record.identity
    assert weights(other) != weights(plain)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optim_args": "fast"}, "transformers rejects the settings: not enough values to unpack"),
        ({"deepspeed": "x.json"}, "transformers rejects the settings: "),
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


@pytest.mark.filterwarnings("default")  # torch's compiler warns of itself
def test_a_compiled_model_trains_like_one_that_is_not(beir: Path, static_model: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "max_steps": 3, "guard": False}
    plain, compiled = (
        opera.adapt(beir, model=static_model, out=tmp_path / name, trainer=fields, **settings)
        for name, fields in {"plain": {}, "compiled": {"torch_compile_backend": "eager"}}.items()
    )
    assert_same_run(plain, compiled)


def test_the_pairs_of_a_loss_that_is_no_number_are_named(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls, pair_losses = tmp_path / "run", [], InfoNCELoss.pair_losses

    def spoilt(self: InfoNCELoss, *arguments: Any) -> torch.Tensor:
        losses = pair_losses(self, *arguments)
        calls.append(losses)
        return losses * torch.where(torch.arange(len(losses)) == 2, torch.nan, 1) if len(calls) == 6 else losses

    with monkeypatch.context() as patch:
        patch.setattr(InfoNCELoss, "pair_losses", spoilt)
        with pytest.raises(TrainingError) as caught:
            opera.adapt(beir, model=static_model, out=out, **SMALL)
    written = json.loads((out / "not_finite.json").read_text())
    assert (written["step"], written["what"], len(written["pairs"])) == (6, "the loss", 16)
    bad = written["pairs"][2]
    assert [row["finite"] for row in written["pairs"]].count(False) == 1
    assert str(caught.value) == (
        f"step 6: the loss of 1 of 16 pairs, such as '{bad['query_id']}' with '{bad['doc_id']}' is not a finite "
        f"number (all pairs of the batch: {out / 'not_finite.json'}); the checkpoint of step 4 is complete; lower "
        "learning_rate, or set precision=fp32, and start again with --overwrite"
    )
    assert is_complete(out / "checkpoints" / "checkpoint-4")
    resumed = opera.adapt(beir, model=static_model, out=out, resume=True, **SMALL)
    assert resumed.training.resumed_from == 4
    assert not (out / "not_finite.json").exists()


def test_a_gradient_that_is_no_number_ends_the_step(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norm = OperaTrainer.__mro__[1]._get_grad_norm

    def infinite(self: Any, model: Any, grad_norm: Any = None) -> Any:
        return torch.tensor(torch.inf) if self.state.global_step == 5 else norm(self, model, grad_norm=grad_norm)

    monkeypatch.setattr(OperaTrainer.__mro__[1], "_get_grad_norm", infinite)
    with pytest.raises(
        TrainingError, match=r"step 6: the gradient of the batch with '.*the checkpoint of step 4 is complete"
    ):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)
    assert len(json.loads((tmp_path / "run" / "not_finite.json").read_text())["pairs"]) == 16


class SpoilsAWeight(TrainerCallback):  # type: ignore[misc]
    """Puts what is no number into the weights when step 8 has ended."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 8:
            with torch.no_grad():
                next(kwargs["model"].parameters())[0, 0] = torch.nan


def test_weights_that_are_no_numbers_are_never_saved(beir: Path, static_model: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"step 8: .*weight has values that are not finite numbers, so OPERA"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", callbacks=[SpoilsAWeight], **SMALL)
    (kept,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert kept.name == "checkpoint-4"
    assert all(abs(values).max() < 1e3 for values in load_file(kept / "model.safetensors").values())
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_out_of_memory_names_the_settings_and_other_errors_pass(
    error: Exception, beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(InfoNCELoss, "pair_losses", fail)
    wrong, said = (
        TrainingError,
        (
            r"^out of memory while training: lower per_device_train_batch_size \(now 16\), train_group_size \(now 2\), "
            r"max_passage_length \(now 512\); then start again with --overwrite$"
        ),
    )
    if "mat1" in str(error):
        wrong, said = RuntimeError, "mat1 and mat2"
    with pytest.raises(wrong, match=said):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)
