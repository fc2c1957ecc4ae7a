"""What a run is foreseen to cost: from a few steps that leave nothing behind, and from what it will do."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

import opera
from opera.config.recipe import make_recipe
from opera.guard.choice import Weights
from opera.run import costs
from opera.run.costs import Costs, documents_encoded, time_run
from opera.training_set.prepare import Prepared, load_and_check


def prepared_run(beir: Path, model: Path, **values: Any) -> Prepared:
    return load_and_check(opera.load_data(beir), str(model), make_recipe(values))


def test_timing_leaves_the_model_and_the_disk_as_they_were(
    beir: Path, bert_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    hard = {"method": "sp", "k": 0.5, "negatives": "hard", "range": "1:50"}
    prepared = prepared_run(beir, bert_model, **hard, per_device_train_batch_size=8)
    before = Weights.of(prepared.model.trained)
    found = time_run(prepared, began=0.0)
    after = Weights.of(prepared.model.trained)
    assert all(tensor.equal(after.tensors[name]) for name, tensor in before.tensors.items())
    assert min(found.per_step, found.per_document) > 0
    assert found.memory > 10**7
    assert not list(tmp_path.iterdir())


def test_the_documents_that_a_run_encodes_are_counted(
    beir: Path, bert_model: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passes(model: Path, **values: Any) -> float:
        return documents_encoded(prepared_run(beir, model, **values), 100) / 120

    assert passes(bert_model, guard=False) == 2
    assert passes(bert_model, refit=False) == 1 + 4
    assert passes(bert_model, refit=True) == 1 + 4 + 2
    assert passes(bert_model, refit=False, eval_steps=20) == 1 + 4 + 5
    assert passes(static_model, adapter="query", refit=False) == 1
    monkeypatch.setattr(costs, "GUARD_DOCUMENTS", 60)  # what ranks a part of the corpus is encoded again for test
    assert passes(bert_model, refit=False) == 3 + 4 / 2


def test_the_sentence_names_time_memory_and_steps() -> None:
    found = Costs({}, steps=200, per_step=2.0, documents=840, per_document=0.1, loading=3.0, memory=2 * 10**9)
    assert found.total == pytest.approx(3 + 2 * 200 + 0.1 * 840)
    assert found.sentence.startswith("about 8 min in all, 2.0 GB of memory: 200 steps of 2.0 s (7 min)")
