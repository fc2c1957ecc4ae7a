"""A grid on several data sets: ``also`` trains on them together."""

import json
from pathlib import Path

import pytest

import opera
from grids import finish_planned, planned


def test_a_grid_trains_on_data_sets_together(compare, beir, second, static_model, tmp_path):
    out, both = tmp_path / "grid", {"mix": "equal", "one_set_per_step": True}
    (cell,) = planned(out, data=[str(beir)], also=[str(second)], methods=["ft"], seeds=[0], values=both)
    assert cell.folder.relative_to(out) == Path("topics+second/ft/steps10/seed0")
    call = cell.call("model")
    assert (call["data"], call["also"], call["mix"]) == (str(beir), [str(second)], "equal")
    finish_planned(cell, static_model)
    command = (beir, "--also", second, "--model", static_model, "--mix", "equal", "--set", "one_set_per_step=true")
    done = compare(*command, "--methods", "ft", "--seeds", "0", "--steps", "10", "--out", out, "--plan", "--json")
    assert [run["finished"] for run in json.loads(done.stdout)["runs"]] == [True]
    axes = {"methods": "ft", "seeds": [0], "steps": [10]}
    assert opera.compare(beir, also=[second], model=static_model, out=out, **axes, **both).tables
    with pytest.raises(opera.RunFolderError, match="pass another --out"):
        opera.compare(beir, also=[second], model=static_model, out=out, **axes)


@pytest.mark.parametrize("kind", [list, tuple])
def test_training_takes_one_data_set_and_says_where_others_go(kind, beir, second, static_model, tmp_path):
    with pytest.raises(opera.SettingError, match=r"^data: must be one data set, got a list; .* also="):
        opera.adapt(kind([beir, second]), model=static_model, out=tmp_path / "run")
    with pytest.raises(opera.SettingError, match=r"^also: must be a list of data sets"):
        opera.adapt(beir, also=str(second), model=static_model, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())
