"""``opera mine``."""

from __future__ import annotations

import json
from pathlib import Path

from commands import QUICK, Opera


def test_mined_negatives_can_be_trained_on(run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path) -> None:
    mined = run_opera("mine", beir, "--model", static_model, "--range", "2:30", "--keep", 4, "--out", "mined.jsonl")
    assert mined.returncode == 0, mined.stderr
    record = json.loads((tmp_path / "mined.jsonl").read_text().splitlines()[0])
    assert set(record) == {"query", "pos", "neg"}
    assert len(record["neg"]) <= 4
    options = ["--method", "ft", "--out", "again", *QUICK, "--json"]
    again = run_opera("train", "mined.jsonl", "--model", static_model, *options)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["run"] == "again"
