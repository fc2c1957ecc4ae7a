"""The trainer: dev evaluations, early stopping."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import EarlyStoppingCallback

import opera
from opera.training import trainer as trainer_module
from small_runs import FAST, InterruptedAt, assert_same_run


def test_dev_evaluations_early_stopping_and_best_model(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path
) -> None:
    run = opera.adapt(
        make_beir(dev=True),
        model=static_model,
        out=tmp_path / "run",
        **{**FAST, "max_steps": 400, "save_steps": 10, "learning_rate": 0.05},
        eval_steps=10,
        callbacks=[EarlyStoppingCallback(3)],
        load_best_model_at_end=True,
    )
    training = run.training
    assert training.steps < 400
    assert training.best_step <= training.steps
    assert training.best_value > 0
    assert len(run.trace()) == training.steps


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
    assert stopped.steps < 400
    with interrupted_at(stopped.steps - 4):
        opera.adapt(folder, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == stopped.steps - 10
    for fact in ("steps", "best_step", "best_value"):
        assert getattr(resumed.training, fact) == getattr(stopped, fact)
    assert_same_run(resumed, whole)


def test_the_fused_optimizer_runs_where_torch_has_one() -> None:
    assert trainer_module._optimizer("adamw_torch", "cpu") == "adamw_torch_fused"
    assert trainer_module._optimizer("adamw_torch", "cuda") == "adamw_torch_fused"
    assert trainer_module._optimizer("adamw_torch", "mps") == "adamw_torch"
    assert trainer_module._optimizer("sgd", "cpu") == "sgd"
