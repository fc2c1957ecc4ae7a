"""What tests of training share: settings of short runs, ways to compare runs, and unit vectors."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from opera.config.recipe import make_recipe
from opera.data import load_all
from opera.retrieval.nearest import NearestDocuments
from opera.run_folder.folder import Run
from opera.training.callbacks import Trace
from opera.training.prepare import Prepared, load_and_check

FAST = {
    "max_steps": 60,
    "per_device_train_batch_size": 16,
    "learning_rate": 0.1,
    "temperature": 0.1,
    "save_steps": 20,
    "precision": "fp32",  # auto depends on the processor
    "refit": False,  # tests of training look at one training
    "bm25": False,  # tests/run/test_hybrid.py has keyword search
}
SMALL = {**FAST, "max_steps": 8, "save_steps": 4, "learning_rate": 1e-3}
SETTINGS = ("temperature=0.1", "precision=fp32", "refit=false", "bm25=false")
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


def prepare(data: Any, model: Path, **settings: Any) -> Prepared:
    """What a run knows of a data set, or of a list of them, before it trains."""
    data_sets = data if isinstance(data, list) else [data]
    return load_and_check(load_all(data_sets), str(model), make_recipe(settings))


@contextmanager
def interrupted_at(step: int) -> Iterator[None]:
    """A training inside breaks off when that step has ended."""
    on_step_end = Trace.on_step_end

    def interrupt(self: Trace, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        on_step_end(self, args, state, control, **kwargs)
        if state.global_step == step:
            raise KeyboardInterrupt

    with patch.object(Trace, "on_step_end", interrupt), pytest.raises(KeyboardInterrupt):
        yield


def unit_vectors(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw float32 vectors of length 1."""
    vectors = rng.normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def search_as_on_a_gpu(patch: pytest.MonkeyPatch) -> None:
    """Search by the lines for GPUs, on the CPU."""
    make = NearestDocuments.__init__

    def as_on_a_gpu(self: NearestDocuments, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self._device = "cuda"

    patch.setattr(NearestDocuments, "__init__", as_on_a_gpu)
