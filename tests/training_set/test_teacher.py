"""Scores of a teacher: which pairs, and in which files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import opera
from backbones import write_reranker
from opera.core.errors import SettingError


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reranker(tmp_path_factory.mktemp("teacher") / "reranker")


def test_a_reranker_scores_pairs_and_mined_negatives(
    beir: Path, static_model: Path, reranker: Path, tmp_path: Path
) -> None:
    alone = opera.score(beir, reranker=reranker)
    assert alone.column_names == ["query_id", "doc_id", "score"]
    assert alone.num_rows == opera.load_data(beir).counts()["train_pairs"]
    both = opera.score(
        beir, reranker=reranker, model=static_model, negatives=3, range=(1, 30), out=tmp_path / "t.parquet"
    )
    mined = opera.mine(beir, model=static_model, range=(1, 30), keep=3)
    found = {(row["query_id"], row["doc_id"]): row["score"] for row in both.to_pylist()}
    wanted = {(row["query_id"], row["doc_id"]) for table in (alone, mined) for row in table.to_pylist()}
    assert found.keys() == wanted
    assert all(
        found[row["query_id"], row["doc_id"]] == pytest.approx(row["score"], abs=0.02) for row in alone.to_pylist()
    )
    assert both.equals(pq.read_table(tmp_path / "t.parquet"))


def test_its_jsonl_is_a_training_file_with_scores(
    beir: Path, static_model: Path, reranker: Path, tmp_path: Path
) -> None:
    path = tmp_path / "scored.jsonl"
    table = opera.score(beir, reranker=reranker, model=static_model, negatives=3, out=path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(len(r["pos_scores"]) + len(r["neg_scores"]) for r in records) == table.num_rows
    assert all(len(r["pos"]) == len(r["pos_scores"]) and len(r["neg"]) == len(r["neg_scores"]) == 3 for r in records)
    data = opera.load_data(path)
    assert data.teacher is not None
    assert sorted(set(data.teacher.scores.tolist())) == sorted(set(table["score"].to_pylist()))
    again = opera.score(path, model=static_model, negatives="given")  # a model's cosines in their place
    assert again.num_rows == len(data.teacher)
    assert max(again["score"].to_pylist()) <= 1.0001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "model: give a model, or a reranker"),
        ({"reranker": "R", "model": "M"}, "model: beside a reranker a model mines; give negatives=N"),
        ({"reranker": "R", "negatives": 3}, "negatives=3: needs a model that mines them"),
        ({"model": "M", "negatives": 0}, "negatives: must be 1 or more, got 0"),
        ({"model": "M", "negatives": "all"}, "negatives: must be 'given' or how many to mine, got 'all'"),
        ({"model": "M", "negatives": "given"}, "negatives=given: .* holds no negatives"),
        ({"reranker": "R", "cbs_pool": 10}, "cbs_pool: a teacher gives no CBS"),
        ({"model": "M", "max_length": 64}, "max_length=64: needs a reranker"),
        ({"reranker": "R", "max_length": 2}, "max_length: must be 8 or more, got 2"),
    ],
)
def test_what_does_not_fit_is_refused(
    beir: Path, static_model: Path, reranker: Path, options: dict[str, Any], message: str
) -> None:
    places = {"M": static_model, "R": reranker}
    with pytest.raises(SettingError, match=message):
        opera.score(beir, **{name: places.get(value, value) for name, value in options.items()})
