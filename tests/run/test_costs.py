"""The steps that are timed before a training leave nothing behind."""

import logging
import tempfile
from typing import Any
from unittest.mock import Mock

import pytest

import opera
from opera.core.errors import TrainingError
from opera.guard import choice, dev_corpus
from opera.guard.choice import Weights
from opera.retrieval.encoder import Encoder
from opera.run import steps
from opera.run.costs import Costs, corpus_passes, time_run
from small_runs import prepare


def test_timing_leaves_the_model_and_the_disk_as_they_were(beir, bert_model, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = {"method": "sp", "k": 0.5, "negatives": "hard", "range": "1:50", "per_device_train_batch_size": 8}
    prepared = prepare(beir, bert_model, **settings)
    before = Weights.of(prepared.model.trained)
    costs = time_run(prepared, began=0.0)
    after = Weights.of(prepared.model.trained)
    assert all(tensor.equal(after.tensors[name]) for name, tensor in before.tensors.items())
    assert costs.seconds == sum(costs.phases.values()) > 0
    assert next(iter(costs.phases)) == "load"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("model", "refit", "documents"),
    [
        ("bert", False, 10_000),
        ("bert", True, 10_000),
        ("bert", True, 100),
        ("static", True, 10_000),
        ("static", True, 100),
    ],
)
def test_the_estimated_passes_over_the_corpus_are_those_of_a_run(
    model, refit, documents, beir, bert_model, static_model, tmp_path, monkeypatch
):
    for limit in ("GUARD_DOCUMENTS", "STATIC_GUARD_DOCUMENTS"):
        monkeypatch.setattr(dev_corpus, limit, documents)
    monkeypatch.setattr(choice, "choose_weight", lambda *arguments: 0.5)
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path / "cache"))
    counted: list[int] = []
    embed = Encoder._vectors

    def count(encoder: Encoder, source: Any, rows: Any, *arguments: Any) -> Any:
        counted.append(len(rows) if source.task == "document" else 0)
        return embed(encoder, source, rows, *arguments)

    settings = {"method": "ft", "max_steps": 2, "per_device_train_batch_size": 8, "refit": refit}
    folder = bert_model if model == "bert" else static_model
    prepared = prepare(beir, folder, **settings)
    monkeypatch.setattr(Encoder, "_vectors", count)
    monkeypatch.setattr(steps, "time_run", Mock(side_effect=TrainingError("not timed here")))
    opera.adapt(beir, model=folder, out=tmp_path / "run", **settings)
    passes = sum(counted) / len(prepared.data.with_splits.joined.corpus)
    assert sum(corpus_passes(prepared, 2).values()) == pytest.approx(passes, rel=0.2)


def test_a_run_of_a_transformer_logs_the_time_left(beir, bert_model, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(choice, "choose_weight", lambda *arguments: 0.0)  # so no phase evaluate_after
    phases = {"load": 5.0, "evaluate_dev": 40.0, "train": 200.0, "evaluate_after": 60.0, "review": 0.0}
    monkeypatch.setattr(steps, "time_run", lambda *_: Costs({}, phases, 0, "about 5 min in all"))
    with caplog.at_level(logging.INFO, logger="opera"):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", method="ft", max_steps=1, batch_size=8, refit=False)
    left = {line.split(" (")[0]: line.split("so far")[1] for line in caplog.messages if " so far" in line}
    assert left["measuring the base model on dev"] == ", about 5 min left)"
    assert left["measuring the base model on test"] == ", about 4 min left)"
    assert left["measuring the fine-tuned model on test"] == ", about 60 s left)"
    assert left["searching for missing labels"] == ")"
