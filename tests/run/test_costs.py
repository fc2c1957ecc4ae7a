"""The steps that are timed before a training leave nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from opera.config.recipe import make_recipe
from opera.data import load_all
from opera.guard.choice import Weights
from opera.run.costs import time_run
from opera.training.prepare import load_and_check


def test_timing_leaves_the_model_and_the_disk_as_they_were(
    beir: Path, bert_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = {"method": "sp", "k": 0.5, "negatives": "hard", "range": "1:50", "per_device_train_batch_size": 8}
    prepared = load_and_check(load_all([beir]), str(bert_model), make_recipe(settings))
    before = Weights.of(prepared.model.trained)
    costs = time_run(prepared, began=0.0)
    after = Weights.of(prepared.model.trained)
    assert all(tensor.equal(after.tensors[name]) for name, tensor in before.tensors.items())
    assert costs.seconds > 0
    assert not list(tmp_path.iterdir())
