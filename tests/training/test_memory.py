"""Out of memory says which settings to lower; other errors pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import opera
from opera.core.errors import TrainingError
from opera.training.loss import InfoNCELoss
from opera.training.session import Session
from small_runs import SMALL

SAYINGS = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
]


def fail(error: Exception) -> Any:
    def raise_it(*arguments: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize("error", SAYINGS)
def test_of_training_the_settings_are_named(
    error: Exception, beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InfoNCELoss, "pair_losses", fail(error))
    with pytest.raises(
        TrainingError,
        match=r"^out of memory while training: lower per_device_train_batch_size \(now 16\), "
        r"train_group_size \(now 2\), "
        r"max_passage_length \(now 512\); then start again with --overwrite$",
    ):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, r"training: set gradient_cache=8, which keeps the batch, or lower per_device_train_batch_size \(now 16\)"),
        ({"gradient_cache": 2}, r"set gradient_cache=1, which keeps the batch, or lower"),
        (
            {"gradient_cache": 1},
            r"training: lower per_device_train_batch_size .*; gradient_checkpointing=true and --lora",
        ),
        (
            {"global_batch_size": 16, "per_device_train_batch_size": None, "gradient_accumulation_steps": 2},
            r"or raise gradient_accumulation_steps \(now 2\), or lower train_group_size",
        ),
    ],
)
def test_a_transformer_has_other_ways(
    settings: dict[str, Any],
    advice: str,
    beir: Path,
    bert_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(InfoNCELoss, "pair_losses", fail(MemoryError()))
    with pytest.raises(TrainingError, match=advice):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", **{**SMALL, "guard": False, **settings})


def test_of_encoding_other_settings_are_named(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opera.training.run.evaluate_encoder", fail(MemoryError()))
    with pytest.raises(
        TrainingError, match=r"encoding texts: lower per_device_eval_batch_size \(now 128\), max_passage_length"
    ):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)


def test_other_errors_pass(beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "update", lambda *arguments, **fields: None)
    monkeypatch.setattr(InfoNCELoss, "pair_losses", fail(RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)
