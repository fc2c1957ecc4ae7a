"""Figures before and after are printed with their intervals, and few test queries are warned of."""

from __future__ import annotations

import json
from pathlib import Path

from commands import QUICK, Opera

FEW = "warning: 16 test queries are few to measure by"


def test_training_prints_the_interval_of_each_change(
    run_opera: Opera, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    done = run_opera("train", beir, "--model", static_model, "--out", tmp_path / "run", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "95% interval" in done.stdout
    assert FEW in done.stdout
    again = run_opera("train", beir, "--model", static_model, "--out", tmp_path / "run", *QUICK, "--resume", "--json")
    values = json.loads(again.stdout)
    change = values["changes"]["nDCG@10"]
    assert change["low"] <= change["difference"] <= change["high"]
    expected = values["measures"]["after"]["nDCG@10"] - values["measures"]["before"]["nDCG@10"]
    assert abs(change["difference"] - expected) < 1e-9, "means of 16 numbers, in another order"


def test_evaluation_prints_the_interval_of_each_mean(run_opera: Opera, beir: Path, static_model: Path) -> None:
    done = run_opera("evaluate", beir, "--model", static_model)
    assert "95% interval" in done.stdout
    assert FEW in done.stdout
    values = json.loads(run_opera("evaluate", beir, "--model", static_model, "--json").stdout)
    for name, mean in values["measures"].items():
        low, high = values["intervals"][name]
        assert low <= mean <= high


def test_inspection_warns_and_names_its_columns_in_words(run_opera: Opera, beir: Path, static_model: Path) -> None:
    done = run_opera("inspect", beir, "--model", static_model)
    assert FEW in done.stdout
    assert "share kept (k)" in done.stdout
    assert "γ" not in done.stdout
