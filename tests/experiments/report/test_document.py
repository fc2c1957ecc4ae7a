"""The data behind a report's charts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from grids import RunsFolder
from opera.experiments.analysis import analyse_runs
from opera.experiments.report import document
from opera.experiments.report.document import collect_document
from opera.runs.folder import Run, RunWriter


def test_curves_have_a_point_per_number_of_steps(grid: Path) -> None:
    comparison = analyse_runs(grid)
    collected = json.loads(json.dumps(collect_document(comparison), allow_nan=False))
    assert (collected["methods"], collected["baseline"]) == (["ft", "sp", "dp"], "ft")
    (data,) = collected["data"]
    assert (data["name"], data["steps"], data["evaluations"]) == ("<i>topics", 16, {})
    assert list(data["curves"]) == list(data["losses"]) == list(data["sampling"]) == ["ft", "sp", "dp"]
    points = data["curves"]["dp"]
    assert [point["steps"] for point in points] == [4, 16]
    after = [Run.open(grid / "dp" / "steps16" / f"seed{seed}").measures["after"]["nDCG@10"] for seed in (0, 1)]
    assert points[1]["mean"]["nDCG@10"] == pytest.approx(np.mean(after), abs=1e-5)
    assert points[1]["std"]["nDCG@10"] == pytest.approx(np.std(after, ddof=1), abs=1e-5)
    first = Run.open(grid / "dp" / "steps16" / "seed0")
    assert data["losses"]["dp"]["steps"] == first.trace()["step"].to_pylist()
    assert data["losses"]["dp"]["loss"] == pytest.approx(first.trace()["loss"].to_pylist(), abs=1e-5)


def test_losses_are_averaged_over_intervals_and_undefined_ones_are_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "LOSS_POINTS", 3)
    folder = RunsFolder(tmp_path / "runs")
    losses = [4.0, 2.0, 1.0, float("nan"), float("inf"), 1.0]
    RunWriter(folder.add(max_steps=6)).write_trace(
        [{"step": step, "loss": loss, "seconds": 0.5} for step, loss in enumerate(losses, start=1)]
    )
    (group,) = folder.groups()
    assert document._losses(group) == {"steps": [1.5, 3.5, 5.5], "loss": [3.0, None, None]}


def test_evaluations_on_the_dev_split_of_the_first_seed(tmp_path: Path) -> None:
    folder = RunsFolder(tmp_path / "runs")
    for seed in (1, 0):
        path = folder.add(seed=seed, eval_steps=2)
        record = json.loads((path / "run.json").read_text())
        record["training"]["evaluations"] = [[2, 0.25 + seed], [4, 0.5 + seed]]
        (path / "run.json").write_text(json.dumps(record))
    (group,) = folder.groups()
    assert document._evaluations(group) == {"measure": "nDCG@10", "steps": [2, 4], "values": [0.25, 0.5]}
