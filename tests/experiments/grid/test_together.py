"""A grid on several data sets: ``also`` trains on them together, and a list compares on one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import opera
from commands import Done
from grids import finish_planned, planned
from tiny_world import write_beir

Call = Callable[..., Done]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("other") / "other", 60, 20, 4)


def test_a_grid_trains_on_data_sets_together(
    compare: Call, beir: Path, other: Path, static_model: Path, tmp_path: Path
) -> None:
    out, both = tmp_path / "grid", {"mix": "equal", "one_set_per_step": True}
    (cell,) = planned(out, data=[str(beir)], also=[str(other)], methods=["ft"], seeds=[0], values=both)
    assert cell.folder.relative_to(out) == Path("topics+other/ft/steps10/seed0")
    call = cell.call("model")
    assert (call["data"], call["also"], call["mix"]) == (str(beir), [str(other)], "equal")
    finish_planned(cell, static_model)
    command = (beir, "--also", other, "--model", static_model, "--mix", "equal", "--set", "one_set_per_step=true")
    done = compare(*command, "--methods", "ft", "--seeds", "0", "--steps", "10", "--out", out, "--plan", "--json")
    assert done.returncode == 0, done.stderr
    assert [run["finished"] for run in json.loads(done.stdout)["runs"]] == [True]
    axes = {"methods": "ft", "seeds": [0], "steps": [10]}
    assert opera.compare(beir, also=[other], model=static_model, out=out, **axes, **both).tables
    with pytest.raises(opera.RunFolderError, match="pass another --out"):
        opera.compare(beir, also=[other], model=static_model, out=out, **axes)


def test_a_list_of_data_sets_is_compared_one_after_the_other(beir: Path, other: Path, tmp_path: Path) -> None:
    cells = planned(tmp_path, data=[str(beir), str(other)], methods=["ft"], seeds=[0])
    assert [cell.data_name for cell in cells] == ["topics", "other"]
    assert [cell.reading["also"] for cell in cells] == [[], []]


@pytest.mark.parametrize("kind", [list, tuple])
def test_training_takes_one_data_set_and_says_where_others_go(
    kind: type, beir: Path, other: Path, static_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(opera.SettingError, match=r"^data: must be one data set, got a list; .* also="):
        opera.adapt(kind([beir, other]), model=static_model, out=tmp_path / "run")
    with pytest.raises(opera.SettingError, match=r"^also: must be a list of data sets"):
        opera.adapt(beir, also=str(other), model=static_model, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())
