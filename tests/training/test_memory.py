"""Out of memory says which settings to lower; other errors pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import opera
from opera.config.training import TrainSettings
from opera.core.errors import TrainingError
from opera.training.loss import InfoNCELoss
from opera.training.memory import memory_advice
from small_runs import SMALL

SAYINGS = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
]


@pytest.mark.parametrize("error", SAYINGS)
@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (
            "evaluate_before",
            r"while encoding texts: lower encode_batch_size \(now 128\), max_passage_length \(now 512\); th",
        ),
        ("trial", r"while training: lower per_device_train_batch_size \(now None\), train_group_size"),
    ],
)
def test_the_settings_of_the_phase_are_named(error: Exception, phase: str, message: str) -> None:
    with pytest.raises(TrainingError, match=message), memory_advice(phase, TrainSettings()):
        raise error


def test_a_global_batch_is_kept() -> None:
    advice = r"raise gradient_accumulation_steps \(now 2\), which keeps global_batch_size=64, or lower train_group_size"
    settings = TrainSettings.parse({"global_batch_size": 64, "gradient_accumulation_steps": 2})
    with pytest.raises(TrainingError, match=advice), memory_advice("train", settings):
        raise MemoryError


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"), memory_advice("train", TrainSettings()):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_a_training_without_memory(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 17179869184 bytes")

    monkeypatch.setattr(InfoNCELoss, "pair_losses", fail)
    with pytest.raises(TrainingError, match=r"lower per_device_train_batch_size \(now 16\).*again with --overwrite$"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)
