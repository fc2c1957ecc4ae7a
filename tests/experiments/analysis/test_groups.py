"""Runs grouped by data set, method and number of steps."""

from __future__ import annotations

import errno
import json
import os
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from grids import RunsFolder
from opera.core.errors import RunFolderError
from opera.experiments.analysis import analyse_runs
from opera.experiments.analysis.groups import DAMAGED, OTHER_FORMAT, UNFINISHED


def test_runs_without_a_newer_setting_join_those_that_have_it(folder: RunsFolder) -> None:
    folder.add(seed=0)
    path = folder.add(seed=1) / "run.json"
    record = json.loads(path.read_text())
    del record["identity"]["refit"]
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


def test_runs_of_automatic_steps_are_a_group_even_if_a_seed_draws_other_splits(folder: RunsFolder) -> None:
    paths = [folder.add(seed=seed, max_steps=None, epochs=12) for seed in (0, 1)]
    record = json.loads((paths[1] / "run.json").read_text())
    change_record(paths[1], settings={**record["settings"], "max_steps": 22})
    folder.add(seed=0, max_steps=7)
    assert [(group.method, group.steps, group.seeds) for group in folder.groups()] == [
        ("ft", 7, (0,)),
        ("ft:epochs=12", 24, (0, 1)),
    ]


def test_the_same_run_twice_is_refused(folder: RunsFolder) -> None:
    first, second = folder.add(), folder.add()
    with pytest.raises(RunFolderError, match="are the same run twice") as caught:
        folder.groups()
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)


def test_runs_of_another_format_are_left_out_and_named(folder: RunsFolder) -> None:
    old = [folder.add(method="sp"), folder.add(method="rp", status="running")]
    for path in old:
        change_record(path, format=1)
    unfinished = folder.add(method="infobatch", status="running")
    with pytest.raises(RunFolderError, match="only 1 unfinished and 2 written by another version"):
        analyse_runs(folder.home)
    folder.add(method="ft")
    comparison = analyse_runs(folder.home)
    assert [row.method for row in comparison.tables[0].rows] == ["ft"]
    assert comparison.left_out[UNFINISHED] == [str(unfinished)]
    assert comparison.as_dict()["left_out"][OTHER_FORMAT] == [str(path) for path in old]
    with pytest.raises(RunFolderError, match="use that version, or train again with --overwrite"):
        analyse_runs(old[0])


def test_runs_of_a_method_that_is_not_registered_here_come_last(folder: RunsFolder) -> None:
    for sharpness, bias in ((5.0, 1), (2.0, 1)):
        path = folder.add(method="ft", seed=3)
        record = json.loads((path / "run.json").read_text())
        own = {"method": "softmax", "sharpness": sharpness, "bias": bias}
        change_record(path, **{name: {**record[name], **own} for name in ("identity", "settings")})
    assert [group.method for group in folder.groups()] == ["softmax:sharpness=2", "softmax:sharpness=5"]
    folder.add(method="sp+dp")
    folder.add(method="dp", temperature=0.05)
    assert [group.method for group in folder.groups()] == [
        "dp:temperature=0.05", "sp+dp", "softmax:sharpness=2", "softmax:sharpness=5",
    ]  # fmt: skip
    shutil.rmtree(path)
    assert "softmax" in [group.method for group in folder.groups()]
    assert analyse_runs(folder.home).tables[0].rows[-1].method == "softmax"


def change_record(path: Path, **changes: Any) -> None:
    """Change fields of a run's ``run.json``."""
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**record, **changes}))


def test_unfinished_runs_are_left_out_and_named(folder: RunsFolder) -> None:
    folder.add(method="ft")
    folder.add(method="dp")
    unfinished = folder.add(method="sp", status="running")
    (folder.home / "junk").mkdir()
    (folder.home / "junk" / "run.json").write_text("{")
    comparison = analyse_runs(folder.home)
    assert [row.method for row in comparison.tables[0].rows] == ["ft", "dp"]
    assert comparison.left_out[UNFINISHED] == [str(unfinished)]
    assert [str(folder.home / "junk" / "run.json") in reason for reason in comparison.left_out[DAMAGED]] == [True]
    with pytest.raises(RunFolderError, match="holds no finished run, only 1 unfinished"):
        analyse_runs(unfinished)
    with pytest.raises(RunFolderError, match=r"junk/run\.json: is not as OPERA wrote it: not JSON"):
        analyse_runs(folder.home / "junk")


def test_folders_that_may_not_be_read_are_named(folder: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.add(seed=0)
    unlisted, unentered = folder.add(seed=1), folder.add(seed=2)
    scandir, lstat = os.scandir, Path.lstat

    def refuse(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) if Path(path) == unlisted else scandir(path))
    monkeypatch.setattr(Path, "lstat", lambda path: refuse(path) if path.parent == unentered else lstat(path))
    comparison = analyse_runs(folder.home)
    damaged = [f"{path}: cannot be read (Permission denied)" for path in (unlisted, unentered)]
    assert comparison.left_out[DAMAGED] == damaged
