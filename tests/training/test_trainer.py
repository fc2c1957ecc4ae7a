"""The trainer: loader workers, dev evaluations, early stopping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import opera
from opera.core.errors import SettingError
from opera.training import trainer as trainer_module
from small_runs import FAST, InterruptedAt, assert_same_run, weights


def test_workers_read_ahead_as_far_as_the_lag_says(beir: Path, static_model: Path, tmp_path: Path) -> None:
    """The same lag without workers trains to the same weights, with gradient accumulation too."""
    fast = {"max_steps": 40, "per_device_train_batch_size": 4, "learning_rate": 0.3, "save_steps": 50}
    fast |= {"method": "dp", "guard": False}
    for accumulation, lag in ((1, 3), (2, 2)):
        settings = {**fast, "gradient_accumulation_steps": accumulation}
        plain = opera.adapt(beir, model=static_model, out=tmp_path / f"plain{lag}", lag=lag, **settings)
        ahead = opera.adapt(
            beir, model=static_model, out=tmp_path / f"ahead{lag}", dataloader_num_workers=1, **settings
        )
        assert plain.training.lag == ahead.training.lag == lag
        assert_same_run(plain, ahead)
        shorter = opera.adapt(beir, model=static_model, out=tmp_path / f"short{lag}", lag=1, **settings)
        assert weights(shorter) != weights(plain)
    with pytest.raises(SettingError, match="lag=1: with dataloader_num_workers=1 batches are drawn 2 steps ahead"):
        opera.adapt(beir, model=static_model, out=tmp_path / "no", dataloader_num_workers=1, lag=1, **fast)


def test_resuming_with_workers_loses_nothing_that_was_read_ahead(
    beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    settings = {
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.05,
        "save_steps": 5,
        "dataloader_num_workers": 2,
        "guard": False,
    }
    whole = opera.adapt(beir, model=static_model, out=tmp_path / "whole", **settings)
    with interrupted_at(7):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == 5
    assert_same_run(resumed, whole)


def test_dev_evaluations_early_stopping_and_best_model(
    make_beir: Callable[..., Path], static_model: Path, tmp_path: Path
) -> None:
    run = opera.adapt(
        make_beir(dev=True),
        model=static_model,
        out=tmp_path / "run",
        **{**FAST, "max_steps": 400, "save_steps": 10, "learning_rate": 0.05},
        eval_steps=10,
        early_stopping_patience=3,
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
        "early_stopping_patience": 3,
        "load_best_model_at_end": True,
    }
    whole = opera.adapt(folder, model=static_model, out=tmp_path / "whole", **settings)
    stopped = whole.training
    assert stopped.steps < 400
    with interrupted_at(stopped.steps - 4):
        opera.adapt(folder, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == stopped.steps - 10
    # Cut once more, when patience has run out and its checkpoint is saved, but nothing is measured yet.
    about = json.loads((resumed.path / "run.json").read_text())
    (resumed.path / "run.json").write_text(json.dumps({**about, "status": "running"}))
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == stopped.steps
    for fact in ("steps", "best_step", "best_value"):
        assert getattr(resumed.training, fact) == getattr(stopped, fact)
    assert_same_run(resumed, whole)


def test_the_fused_optimizer_runs_where_torch_has_one() -> None:
    assert trainer_module._optimizer("adamw_torch", "cpu") == "adamw_torch_fused"
    assert trainer_module._optimizer("adamw_torch", "cuda") == "adamw_torch_fused"
    assert trainer_module._optimizer("adamw_torch", "mps") == "adamw_torch"
    assert trainer_module._optimizer("sgd", "cpu") == "sgd"
