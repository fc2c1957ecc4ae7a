"""Runs grouped by data set, method and number of steps."""

from __future__ import annotations

import json
from itertools import product

import pytest

from grids import RunsFolder
from opera.core.errors import RunFolderError
from opera.experiments.analysis import analyse_runs


def test_runs_without_a_newer_setting_join_those_that_have_it(folder: RunsFolder) -> None:
    folder.add(seed=0)
    path = folder.add(seed=1) / "run.json"
    record = json.loads(path.read_text())
    del record["identity"]["snapshots"]
    path.write_text(json.dumps(record))
    (group,) = folder.groups()
    assert (group.method, group.seeds) == ("ft", (0, 1))


def test_groups_hold_the_seeds_of_a_data_set_method_and_number_of_steps(folder: RunsFolder) -> None:
    for seed, steps, data in product((2, 0), (8, 4), ("data/two", "data/one.jsonl")):
        folder.add(data=data, seed=seed, max_steps=steps)
    found = folder.groups()
    assert [(group.data, group.steps) for group in found] == [
        ("data/one.jsonl", 4), ("data/one.jsonl", 8), ("data/two", 4), ("data/two", 8),
    ]  # fmt: skip
    assert all(group.seeds == (0, 2) for group in found)
    assert [group.name for group in found] == ["one", "one", "two", "two"]


def test_the_same_run_twice_is_refused(folder: RunsFolder) -> None:
    first, second = folder.add(), folder.add()
    with pytest.raises(RunFolderError, match="are the same run twice") as caught:
        folder.groups()
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)


def test_unfinished_runs_are_left_out_and_named(folder: RunsFolder) -> None:
    folder.add(method="ft")
    folder.add(method="dp")
    unfinished = folder.add(method="sp", status="running")
    (folder.home / "junk").mkdir()
    (folder.home / "junk" / "run.json").write_text("{")
    comparison = analyse_runs(folder.home)
    assert [row.method for row in comparison.tables[0].rows] == ["ft", "dp"]
    assert comparison.unfinished == (unfinished,)
    with pytest.raises(RunFolderError, match="holds no finished run, only 1 unfinished"):
        analyse_runs(unfinished)
    with pytest.raises(RunFolderError, match=r"holds no finished run$"):
        analyse_runs(folder.home / "junk")
