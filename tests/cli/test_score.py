"""``opera score``."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from commands import Opera


def test_it_writes_a_table_of_the_pairs(run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path) -> None:
    scored = run_opera("score", beir, "--model", static_model, "--out", "pairs.parquet")
    assert scored.returncode == 0
    assert "quantile" in scored.stdout
    table = pq.read_table(tmp_path / "pairs.parquet")
    assert table.column_names == ["query_id", "doc_id", "grade", "similarity", "loss"]
    assert run_opera("score", beir, "--model", static_model, "--out", "pairs.tsv").returncode == 0
    strict = ("--relevant-grade", 2, "--out", "strict.tsv")
    assert run_opera("score", beir, "--model", static_model, *strict).returncode == 0
    loose, fewer = ((tmp_path / name).read_text().splitlines() for name in ("pairs.tsv", "strict.tsv"))
    assert 1 < len(fewer) < len(loose)
    assert all(line.split("\t")[2] == "2" for line in fewer[1:])
    assert len((tmp_path / "pairs.tsv").read_text().splitlines()) == len(table) + 1
