"""Locating models; the splits and texts that a run's model was trained on are used again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opera
from grids import write_unfinished_run
from opera.core.errors import DataError
from opera.data import RetrievalData
from opera.data.splits import draw_missing_splits
from opera.retrieval.locate import with_run_splits
from opera.retrieval.measures import FULL_MEASURES
from small_runs import SMALL


@pytest.fixture
def data() -> RetrievalData:
    """Twenty training queries, each with a document of grade 1 and one of grade 2."""
    ids = [str(number) for number in range(20)]
    qrels = {"train": {number: {number: 1, str(19 - int(number)): 2} for number in ids}}
    return RetrievalData.from_dicts(
        "mine", corpus={i: f"text {i}" for i in ids}, queries={i: f"query {i}" for i in ids}, qrels=qrels
    )


def run_of(path: Path, data: RetrievalData, **values: Any) -> Path:
    write_unfinished_run(path, {"method": "ft", **values}, data.source, fingerprint=data.fingerprint)
    return path


def test_splits_are_drawn_as_the_run_drew_them(data: RetrievalData, tmp_path: Path) -> None:
    path = run_of(tmp_path / "run", data, seed=5, relevant_grade=2, guard=False)
    prepared = with_run_splits(data, path)
    drawn = draw_missing_splits(data.with_relevant_grade(2), seed=5)
    assert list(prepared.splits) == ["train", "test"]
    for name, qrels in prepared.splits.items():
        assert qrels.query_rows.tolist() == drawn.splits[name].query_rows.tolist()
        assert set(qrels.grades.tolist()) == {0, 2}
    assert prepared.splits["test"].n_queries == 2


def test_dev_of_a_run_that_trained_on_it_in_the_end_is_named(
    beir: Path, static_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"max_steps": 12, "per_device_train_batch_size": 8, "learning_rate": 0.05, "method": "ft"}
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", refit=True, **settings)
    assert run.record.guard is not None
    assert run.record.guard.refit
    for split in ("test", "dev"):
        caplog.clear()
        with caplog.at_level("INFO", logger="opera"):
            opera.evaluate(beir, model=run.path, split=split)
        assert ("dev scores are too high" in caplog.text) is (split == "dev")


def test_a_run_on_other_data_or_no_run_changes_nothing(data: RetrievalData, tmp_path: Path) -> None:
    write_unfinished_run(tmp_path / "run", {"method": "ft"}, data.source, fingerprint="of other data")
    assert with_run_splits(data, tmp_path / "run") is data
    assert with_run_splits(data, tmp_path) is data
    assert with_run_splits(data, "minilm") is data


def test_a_run_on_data_without_a_test_split_can_be_measured_again(static_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        "\n".join(json.dumps({"query": f"t{i % 12}w5 common{i}", "pos": [f"t{i % 12}w1"]}) for i in range(20))
    )
    run = opera.adapt(path, model=static_model, out=tmp_path / "run", **SMALL, corpus_text="text", seed=3)
    assert opera.evaluate(path, model=run.path, measures=FULL_MEASURES).measures == pytest.approx(run.measures["final"])
    with pytest.raises(DataError, match="has no split 'test'"):
        opera.evaluate(path, model=static_model)
