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
from opera.run.costs import Costs, time_run, work_of
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
    assert min(found.seconds.values()) > 0
    assert found.memory > 10**7
    assert not list(tmp_path.iterdir())


def test_what_a_run_does_is_what_it_is_foreseen_to_do(
    beir: Path, bert_model: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"max_steps": 100, "refit": True}
    steps, documents = {"steps": 100}, {"documents": 120}
    assert work_of(prepared_run(beir, bert_model, **whole)) == {
        "evaluate_dev": documents, "trial": steps, "train": steps, "choose_share": {"documents": 4 * 120},
        "compare_trainings": documents, "evaluate_fine_tuned": documents, "evaluate_after": {"documents": 0},
    }  # fmt: skip
    assert work_of(prepared_run(beir, bert_model, max_steps=100, guard=False)) == {
        "evaluate_before": documents, "train": steps, "evaluate_after": documents
    }  # fmt: skip
    assert work_of(prepared_run(beir, static_model, max_steps=100, adapter="query", refit=False)) == {
        "encode": documents, "train": steps
    }  # fmt: skip
    monkeypatch.setattr(costs, "GUARD_DOCUMENTS", 100)  # what ranks a part of the corpus is encoded again for test
    part = work_of(prepared_run(beir, bert_model, max_steps=100, refit=False))
    assert part["choose_share"] == {"documents": 4 * 100 + 120}, "the fine-tuned model's best are searched for"
    assert part["evaluate_fine_tuned"] == part["evaluate_after"] == documents


def test_the_sentence_names_time_memory_and_steps(beir: Path, bert_model: Path) -> None:
    prepared = prepared_run(beir, bert_model, refit=True, max_steps=100)
    found = Costs(prepared, {"steps": 2.0, "documents": 0.1}, loading=3.0, memory=2 * 10**9)
    assert found.total == pytest.approx(3 + 2 * 100 * 2 + 0.1 * 120 * (1 + 4 + 1 + 1))
    assert found.sentence.startswith("about 8 min in all, 2.0 GB of memory: 2 trainings of 100 steps of 2.0 s (7 min)")
