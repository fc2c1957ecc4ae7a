"""Drawing splits from train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import RetrievalData, load_data
from opera.data.splits import copy_splits, draw_missing_splits, hold_out


def test_held_out_queries_leave_train(beir: Path) -> None:
    data = load_data(beir)
    held = hold_out(data, "dev", 0.25, seed=1)
    assert held.split("dev").n_queries == 10
    assert not set(held.split("dev").query_rows) & set(held.split("train").query_rows)
    assert held.split("train").n_queries == 30
    assert "drew 10 of the 40 train queries as dev (same-documents, seed 1)" in held.notes[-1]
    assert np.array_equal(held.split("dev").query_rows, hold_out(data, "dev", 0.25, 1).split("dev").query_rows)
    assert not np.array_equal(held.split("dev").query_rows, hold_out(data, "dev", 0.25, 2).split("dev").query_rows)


def test_only_missing_splits_are_drawn(beir: Path) -> None:
    data = load_data(beir)
    assert draw_missing_splits(data, seed=0, test_fraction=0.1) is data
    drawn = draw_missing_splits(
        data, seed=0, test_fraction=0.1, needs_dev=True, dev_fraction=0.25, future="same-documents"
    )
    assert drawn.split("test") is data.split("test")
    assert drawn.split("dev").n_queries == 10
    alone = RetrievalData.from_dicts(
        "mine",
        corpus={"d": "a"},
        queries={f"q{n}": "b" for n in range(20)},
        qrels={"train": {f"q{n}": {"d": 1} for n in range(20)}},
    )
    both = draw_missing_splits(alone, seed=0, test_fraction=0.2, needs_dev=True, dev_fraction=0.25)
    assert {name: qrels.n_queries for name, qrels in both.splits.items()} == {"train": 12, "test": 4, "dev": 4}
    assert len(both.notes) == 3


def test_queries_without_a_relevant_document_are_not_drawn() -> None:
    qrels = {"train": {f"q{n}": {"d": int(n < 2)} for n in range(50)}}
    queries = {f"q{n}": "b" for n in range(50)}
    data = RetrievalData.from_dicts("mine", corpus={"d": "a"}, queries=queries, qrels=qrels)
    held = hold_out(data, "test", 0.9, seed=0)
    assert held.split("test").n_queries == 1
    assert held.split("train").relevant().n_queries == 1
    with pytest.raises(DataError, match="has no split 'dev', and 1 train queries are too few to draw one"):
        hold_out(held, "dev", 0.5, seed=0)


def test_copied_splits_keep_the_original_grades(beir: Path) -> None:
    data = load_data(beir)
    changed = hold_out(data.with_relevant_grade(2), "dev", 0.25, seed=1)
    again = copy_splits(data, source=changed)
    assert again.notes == changed.notes
    for name in ("train", "dev", "test"):
        assert np.array_equal(again.split(name).query_rows, changed.split(name).query_rows)
    assert again.split("test") is data.split("test")
    assert (again.split("dev").grades == 1).any()
