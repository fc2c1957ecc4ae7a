"""The results of a folder of runs: baseline, tables, costs and JSON."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from scipy.stats import ttest_rel

from grids import RunsFolder, around
from opera.core.errors import SettingError
from opera.experiments.analysis import PAPERS, PRIMARY, RECALL, analyse_runs
from opera.runs.folder import Run
from opera.runs.record import GridRecord


def test_which_baseline(folder: RunsFolder) -> None:
    folder.add(method="dp")
    assert analyse_runs(folder.home).baseline is None
    folder.add(method="sp")
    assert analyse_runs(folder.home).baseline == "sp"
    folder.add(method="ft")
    assert analyse_runs(folder.home).baseline == "ft"
    assert analyse_runs(folder.home, "dp").baseline == "dp"
    with pytest.raises(SettingError, match="--baseline rp: no run has this label; there are ft, sp, dp"):
        analyse_runs(folder.home, "rp")


def test_one_seed_and_one_method(folder: RunsFolder) -> None:
    path = folder.add(method="dp", after=[0.25] * 9)
    comparison = analyse_runs(path)
    (row,) = comparison.tables[0].rows
    assert row.measures[PRIMARY].std is None
    assert (row.tests, row.step_ratio) == ({}, None)
    assert (comparison.ranks, comparison.convergence, comparison.missing) == ({}, (), 0)


def test_costs(folder: RunsFolder) -> None:
    folder.add(method="ft", step_seconds=0.5)
    folder.add(method="dp", step_seconds=0.75)
    first, second = analyse_runs(folder.home).tables[0].rows
    assert (first.seconds_per_step, first.step_ratio, second.step_ratio) == (0.5, 1.0, 1.5)
    assert second.training_seconds == 3.0, "of the steps, whatever the sittings took"


def test_everything_goes_to_json(folder: RunsFolder) -> None:
    for method, steps, data in product(("ft", "dp"), (4, 8), ("one", "two")):
        folder.add(method=method, max_steps=steps, data=data, after=around(0.5, steps), similarity=range(9))
    comparison = analyse_runs(folder.home)
    record = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
    assert record["baseline"] == "ft"
    assert [(table["name"], table["steps"]) for table in record["tables"]] == list(product(("one", "two"), (4, 8)))
    assert set(record["tables"][0]["rows"][1]["tests"]) == {PRIMARY, PAPERS, RECALL}
    assert len(record["convergence"]) == 4
    assert set(record["average_ranks"][RECALL]) == {"ft", "dp"}


def test_the_untrained_model_takes_part(folder: RunsFolder) -> None:
    folder.add(method="ft", after=around(0.05), before=[0.1] * 9)
    folder.add(method="dp", after=around(0.02), before=[0.1] * 9)
    comparison = analyse_runs(folder.home)
    (table,) = comparison.tables
    assert table.best(PRIMARY) == "untrained"
    ft = table.rows[0]
    assert ft.gain is not None
    differences = Run.open(folder.home / "run0").per_query()[f"after {PRIMARY}"].to_numpy() - 0.1
    assert ft.gain.difference == pytest.approx(differences.mean())
    alone = ttest_rel(differences, np.zeros(len(differences))).pvalue
    assert ft.gain.t_test == pytest.approx(alone)
    assert ft.gain.t_test_holm >= ft.gain.t_test


def test_cells_that_a_grid_lacks_are_counted(folder: RunsFolder) -> None:
    folder.add()
    GridRecord(model="models/small", settings={}, cells=["run0", "run1", "run2"]).write(folder.home)
    comparison = analyse_runs(folder.home)
    assert (comparison.planned, comparison.missing) == (3, 2)
