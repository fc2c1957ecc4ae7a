"""What tests of training share: settings of short runs, ways to compare runs, and unit vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from opera.run_folder.folder import Run

InterruptedAt = Callable[[int], AbstractContextManager[None]]

FAST: dict[str, Any] = {
    "max_steps": 60,
    "per_device_train_batch_size": 16,
    "learning_rate": 0.1,
    "temperature": 0.1,
    "save_steps": 20,
    "precision": "fp32",  # auto depends on the processor
    "refit": False,  # tests of training look at one training
}
SMALL: dict[str, Any] = {**FAST, "max_steps": 8, "save_steps": 4, "learning_rate": 1e-3}
SETTINGS = ("temperature=0.1", "precision=fp32", "refit=false")
OPTIONS = ["--lr", "0.01", "--batch-size", "8"]


def train_command(beir: Path, model: Path, out: Path, *more: str) -> list[str]:
    """Arguments of ``opera`` for a short run."""
    names = {word.partition("=")[0] for word in more}
    settings = [word for setting in SETTINGS if setting.partition("=")[0] not in names for word in ("--set", setting)]
    return ["train", str(beir), "--model", str(model), "--out", str(out), *OPTIONS, *settings, *more]


def weights(run: Run) -> str:
    """Hash the trained weights."""
    return hashlib.sha256(next(run.model_path.rglob("model.safetensors")).read_bytes()).hexdigest()


def assert_same_run(one: Run, other: Run, but: tuple[str, ...] = ()) -> None:
    """Compare weights, draws and traces, but for the seconds and some columns of the pairs."""
    assert weights(one) == weights(other)
    assert one.pairs().drop_columns(list(but)) == other.pairs().drop_columns(list(but))
    assert one.trace().drop_columns("seconds") == other.trace().drop_columns("seconds")


def unit_vectors(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw float32 vectors of length 1."""
    vectors = rng.normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
