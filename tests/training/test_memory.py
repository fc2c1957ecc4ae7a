"""Out of memory says which settings to lower; other errors pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import opera
from opera.config.training import TrainSettings
from opera.core.errors import TrainingError
from opera.retrieval.models import load_model
from opera.training import memory
from opera.training.loss import InfoNCELoss
from opera.training.memory import memory_advice
from opera.training.memory_need import OPTIMIZER_BYTES, _of_group, _of_machine, need_of
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
            r"texts: set encode_batch_size=32 \(now 128\), or lower max_passage_length \(now 512\); th",
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


GIVEN = {
    "per_device_train_batch_size": 64,
    "max_passage_length": 64,
    "max_query_length": 64,
    "precision": "fp32",
    "attn_implementation": "eager",
}


@pytest.mark.parametrize(
    ("more", "free", "advice"),
    [
        ({}, 2e7, r"set gradient_cache=32 \(batches of 64 pairs need about 0\.1 GB at once, 0\.0 GB were free\), or"),
        ({}, 3e6, r"set gradient_cache=4 \("),
        ({}, None, r"set gradient_cache=32 \(batches of 64 pairs need about 0\.1 GB at once\), or lower train_group_"),
        ({"gradient_cache": 16}, None, r"set gradient_cache=8 \(half as many\), or"),
        ({"gradient_cache": 1}, None, r"training: lower max_passage_length \(now 64\), or set gradient_checkpointing="),
        ({}, 1e5, r"train with --lora r=16 \(gradients and the optimizer's state take 0\.0 GB, 0\.0 GB were free\)"),
    ],
)
def test_a_transformer_is_advised_how_far(
    more: dict[str, Any], free: float | None, advice: str, bert_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: free)
    settings = TrainSettings.parse({**GIVEN, **more})
    with pytest.raises(TrainingError, match=advice), memory_advice("train", settings, load_model(bert_model, "cpu")):
        raise MemoryError


def test_the_estimate_follows_the_sizes(bert_model: Path) -> None:
    model = load_model(bert_model, "cpu")
    need = need_of(model, TrainSettings.parse({**GIVEN, "train_group_size": 3}))
    assert need is not None
    assert (need.pair_tokens, need.passage_tokens) == (4 * 64, 64)
    assert need.fixed == OPTIMIZER_BYTES * sum(part.numel() for part in model.parameters())
    assert need.per_token == 2 * 2 * (18 * 32 + 4 * 64 + 5 * 2 * 64)
    assert need.of_pairs(10) == need.fixed + 10 * 256 * need.per_token
    half = need_of(model, TrainSettings.parse({**GIVEN, "precision": "bf16"}))
    assert half is not None
    assert half.per_token == need.per_token / 2
    packed = need_of(model, TrainSettings.parse({**GIVEN, "attn_implementation": None}))
    assert packed is not None
    assert packed.per_token == 2 * 2 * (18 * 32 + 4 * 64)  # no attention weights are kept


def test_free_memory_is_read_where_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    1234 kB\n")
    assert _of_machine(tmp_path / "meminfo") == 1234 * 1024
    assert _of_machine(tmp_path / "none") is None
    assert _of_group(tmp_path) is None
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert _of_group(tmp_path) == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert _of_group(tmp_path) is None
