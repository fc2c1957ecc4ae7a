"""What the guard chose in the runs of a method, and both models' results."""

from __future__ import annotations

import json

import numpy as np
import pytest

from grids import N_QUERIES, RunsFolder, around, guard_record
from opera.experiments.analysis import PRIMARY, analyse_runs
from opera.runs.guard_words import dev_sentence

BEFORE = [0.3] * N_QUERIES


def test_both_models_of_each_method(folder: RunsFolder) -> None:
    tuned, after = ([around(mean, seed) for seed in (0, 1)] for mean in (0.4, 0.5))
    for seed, (share, verdict) in enumerate(((0.5, "better"), (1, "same"))):
        chosen = guard_record(share=share, verdict=verdict, dev_seen=0.4 + 0.2 * seed, dev_queries=60 + seed)
        folder.add(seed=seed, before=BEFORE, fine_tuned=tuned[seed], after=after[seed], chosen=chosen)
    (row,) = analyse_runs(folder.home).tables[0].rows
    guard = row.guard
    assert guard is not None
    assert (guard.shares, guard.verdicts) == ((0.5, 1), ("better", "same"))
    assert (guard.typical.future, guard.typical.dev_queries, guard.typical.test_seen) == ("like-test", 60, 0.45)
    assert guard.typical.dev_seen == pytest.approx(0.5)
    assert guard.fine_tuned[PRIMARY].mean == pytest.approx(0.4)
    assert guard.against_fine_tuned is not None
    assert guard.against_fine_tuned.difference == pytest.approx(
        (np.mean(after, axis=0) - np.mean(tuned, axis=0)).mean()
    )
    assert row.gain is not None
    assert row.gain.difference == pytest.approx(0.2)


def test_tests_are_corrected_over_the_guarded_methods(folder: RunsFolder) -> None:
    for method, mean in (("ft", 0.4), ("dp", 0.45)):
        folder.add(method=method, fine_tuned=around(mean), after=around(0.5, 1), chosen=guard_record())
    folder.add(method="sp", guard=False, fine_tuned=around(0.5), after=around(0.5))
    guards = {row.method: row.guard for row in analyse_runs(folder.home).tables[0].rows}
    assert guards.pop("sp:guard=false") is None
    tests = [guard.against_fine_tuned for guard in guards.values() if guard is not None]
    smallest = min((test for test in tests if test is not None), key=lambda test: test.t_test)
    assert smallest.t_test_holm == pytest.approx(2 * smallest.t_test)


def test_runs_without_a_guard_show_nothing(folder: RunsFolder) -> None:
    folder.add(method="ft")
    folder.add(method="dp", seed=0, chosen=guard_record(), fine_tuned=around(0.4))
    folder.add(method="dp", seed=1)
    record = json.loads(json.dumps(analyse_runs(folder.home).as_dict(), allow_nan=False))
    assert [row["guard"] for row in record["tables"][0]["rows"]] == [None, None]


def test_it_goes_to_json(folder: RunsFolder) -> None:
    folder.add(fine_tuned=around(0.4), chosen=guard_record())
    record = json.loads(json.dumps(analyse_runs(folder.home).as_dict(), allow_nan=False))
    guard = record["tables"][0]["rows"][0]["guard"]
    assert (guard["shares"], guard["verdicts"], guard["typical"]["dev_seen"]) == ([0.5], ["better"], 0.5)
    assert guard["fine_tuned"][PRIMARY]["mean"] == pytest.approx(0.4)


def test_warnings_are_about_the_mean_of_the_seeds(folder: RunsFolder) -> None:
    for seed, seen in enumerate((0.9, 0.7)):
        chosen = guard_record(dev_seen=seen, test_seen=0.1, dev_queries=40 + seed)
        folder.add(seed=seed, fine_tuned=around(0.4), chosen=chosen)
    (row,) = analyse_runs(folder.home).tables[0].rows
    assert row.guard is not None
    newer, few = row.guard.warnings
    assert "train names 10% of them, and 80% of dev's" in newer
    assert "40 dev queries are few" in few
    assert "Train names 80% of dev's documents and 10% of test's" in dev_sentence(row.guard.typical)
