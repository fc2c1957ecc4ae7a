"""``opera.score`` and ``opera.mine``: tables for Python, files for other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import opera
from opera.core.errors import SettingError


def test_score_returns_what_it_writes(beir: Path, static_model: Path, tmp_path: Path) -> None:
    table = opera.score(beir, model=static_model, out=tmp_path / "pairs.parquet", cbs_pool=20)
    assert table.column_names == ["query_id", "doc_id", "grade", "similarity", "loss", "cbs"]
    assert table.num_rows == opera.load_data(beir).counts()["train_pairs"]
    assert table.equals(pq.read_table(tmp_path / "pairs.parquet"))
    assert (np.abs(table["similarity"].to_numpy()) <= 1.0001).all()
    assert opera.score(beir, model=static_model).column_names == table.column_names[:-1]
    lines = (tmp_path / "pairs.tsv", tmp_path / "pairs.jsonl")
    for path in lines:
        opera.score(opera.load_data(beir), model=static_model, out=path)
    assert len(lines[0].read_text().splitlines()) == table.num_rows + 1
    assert json.loads(lines[1].read_text().splitlines()[0])["query_id"] == table["query_id"][0].as_py()


def test_score_notes_a_small_pool(beir: Path, static_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="opera"):
        opera.score(beir, model=static_model, cbs_pool=10_000)
    assert "note: cbs_pool=10000: there are fewer positives of other queries" in caplog.text
    with pytest.raises(SettingError, match="cbs_pool: must be 0 or more, got -1"):
        opera.score(beir, model=static_model, cbs_pool=-1)


def test_mine_returns_what_it_writes(beir: Path, static_model: Path, tmp_path: Path) -> None:
    table = opera.mine(beir, model=static_model, out=tmp_path / "mined.tsv", range=(3, 20), keep=4)
    assert table.column_names == ["query_id", "doc_id"]
    rows = [line.split("\t") for line in (tmp_path / "mined.tsv").read_text().splitlines()]
    assert rows[0] == ["query-id", "corpus-id"]
    assert rows[1:] == [list(row.values()) for row in table.to_pylist()]
    positives = opera.score(beir, model=static_model)
    known = set(zip(positives["query_id"].to_pylist(), positives["doc_id"].to_pylist(), strict=True))
    assert not known & {tuple(row) for row in rows[1:]}
    again = opera.mine(beir, model=static_model, out=tmp_path / "mined.jsonl", range=(3, 20), keep=4)
    assert again.equals(table)
    records = [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]
    assert sum(len(record["neg"]) for record in records) == table.num_rows
    assert opera.load_data(tmp_path / "mined.jsonl").given_negatives is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"range": (0, 5)}, "range: must be LO:HI with 1 <= LO <= HI"),
        ({"range": (10, 2)}, "range: must be LO:HI with 1 <= LO <= HI"),
        ({"keep": 0}, "keep: must be 1 or more, got 0"),
        ({"seed": -1}, "seed: must be 0 to 4294967295, got -1"),
        ({"relevant_grade": 0}, "relevant_grade: must be 1 or more, got 0"),
    ],
)
def test_mine_refuses_what_it_cannot_use(beir: Path, static_model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        opera.mine(beir, model=static_model, **options)


def test_bad_ranges_and_formats_are_refused(beir: Path, static_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="starts past the end of the corpus"):
        opera.mine(beir, model=static_model, range=(500, 600))
    with pytest.raises(SettingError, match=r"must end in \.jsonl or \.tsv"):
        opera.mine(beir, model=static_model, out=tmp_path / "mined.csv")
    assert list(tmp_path.iterdir()) == []
