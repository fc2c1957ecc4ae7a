"""Which cells a grid has, with which settings, and where their runs lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from grids import planned
from opera.config.recipe import make_recipe
from opera.core.errors import SettingError
from opera.core.settings import Settings, setting
from opera.experiments.grid.plan import GridAxes, grid_axes, parse_method, plan_grid
from opera.methods import METHODS


def test_methods_carry_settings() -> None:
    assert parse_method("dp") == ("dp", {})
    assert parse_method("DP:levels=query:range=10:50") == ("dp", {"levels": "query", "range": "10:50"})
    assert parse_method("sp+cbs:cbs_pool=10") == ("sp+cbs", {"cbs_pool": 10})


def test_seeds_come_outermost_and_each_cell_has_its_folder(tmp_path: Path) -> None:
    cells = planned(tmp_path, methods=["ft", "sp:k=0.5"], steps=[5, 10], shared={"lr": 0.1})
    folders = [str(cell.folder.relative_to(tmp_path)) for cell in cells]
    assert folders[:3] == ["x/ft/steps5/seed0", "x/sp,k=0.5/steps5/seed0", "x/ft/steps10/seed0"]
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
    assert len(set(folders)) == 8
    assert cells[1].values == {"learning_rate": 0.1, "k": 0.5, "method": "sp", "max_steps": 5, "seed": 0}
    assert cells[1].log == tmp_path / "x/sp,k=0.5/steps5/seed0.log"
    assert cells[1].title == "x, sp:k=0.5, 5 steps, seed 0"


def test_a_methods_own_setting_goes_before_that_of_all(tmp_path: Path) -> None:
    for shared, own in (({"lr": 0.1}, "learning_rate"), ({"learning_rate": 0.1}, "lr")):
        (cell,) = planned(tmp_path, methods=[f"ft:{own}=0.2"], seeds=[0], shared=shared)
        assert make_recipe(cell.values).train.learning_rate == 0.2


def test_data_sets_of_one_name_and_odd_names_stay_inside_the_grid(tmp_path: Path) -> None:
    cells = planned(
        tmp_path,
        data=["a/x", "b/x", "b/x.jsonl", "python:json", "..", "/", "c/é [b] %s", "hf:o/n:test", "irds:o/x", "hf:.."],
        methods=["ft"],
        seeds=[0],
    )
    names = [cell.folder.relative_to(tmp_path).parts[0] for cell in cells]
    assert names == [
        "x",
        "x-2",
        "x-3",
        "python-json",
        Path.cwd().parent.name,
        "-",
        "é [b] %s",
        "n-test",
        "x-4",
        "hf-..",
    ]
    assert all(len(cell.folder.relative_to(tmp_path).parts) == 4 for cell in cells)


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        planned(tmp_path, methods=["dq", "sp:k=2", "sp", "sp:k=0.25"])
    for part in ("dq: unknown method 'dq'", "sp:k=2: k: must be", "sp and sp:k=0.25 are the same settings"):
        assert part in str(caught.value)


def test_a_recipes_axes_are_defaults_and_the_rest_is_shared() -> None:
    recipe = {"method": "SP", "steps": 50, "seed": 3, "lr": 0.1, "k": 0.5}
    axes, shared = grid_axes(recipe)
    assert axes == GridAxes(methods=("sp",), seeds=(3,), steps=(50,))
    assert shared == {"learning_rate": 0.1, "k": 0.5}
    axes, shared = grid_axes(recipe, ["ft", "dp"], [0, 1], [10, 20])
    assert axes == GridAxes(methods=("ft", "dp"), seeds=(0, 1), steps=(10, 20))
    assert shared == {"learning_rate": 0.1, "k": 0.5}
    assert grid_axes({})[0] == GridAxes(methods=("ft", "denoise"), seeds=(0, 1, 2), steps=(None,))
    assert grid_axes({"max_steps": 7})[0].steps == (7,)


def test_seeds_and_steps_are_integers_however_they_are_written(tmp_path: Path) -> None:
    for axes, _ in (
        grid_axes({"max_steps": 1e3, "seed": 1.0}, ["ft"]),
        grid_axes({"max_steps": "1000", "seed": "1"}, ["ft"]),
        grid_axes({}, ["ft"], seeds=[1.0], steps=[1e3]),  # type: ignore[list-item]
    ):
        (cell,) = plan_grid(["data/x"], axes, tmp_path, {})
        assert str(cell.folder.relative_to(tmp_path)) == "x/ft/steps1000/seed1"
        assert [(type(value), value) for value in (cell.steps, cell.seed)] == [(int, 1000), (int, 1)]
    for values, rule in (
        ({"max_steps": 0}, "max_steps: must be greater"),
        ({"seed": 0.5}, "seed: must be a whole number"),
        ({"seed": True}, "seed: must be a whole number"),
    ):
        with pytest.raises(SettingError, match=rule):
            grid_axes(values)


def test_methods_may_be_written_in_any_case(tmp_path: Path) -> None:
    cells = planned(tmp_path, methods=["FT", "Dp:levels=query"], seeds=[0])
    assert [cell.label for cell in cells] == ["ft", "dp:levels=query"]
    assert [cell.values["method"] for cell in cells] == ["ft", "dp"]
    with pytest.raises(SettingError, match="--methods: ft is given twice"):
        planned(tmp_path, methods=["ft", "FT"])


def test_a_shared_setting_of_a_method_applies_to_the_methods_that_have_it(tmp_path: Path) -> None:
    cells = planned(tmp_path, methods=["ft", "rp", "sp:k=0.75", "dp"], seeds=[0], shared={"k": 0.5, "soft": False})
    own = [{name: cell.values[name] for name in ("k", "soft") if name in cell.values} for cell in cells]
    assert own == [{}, {"k": 0.5}, {"k": 0.75}, {"soft": False}]
    with pytest.raises(SettingError, match="setting 'k' applies only to the methods"):
        planned(tmp_path, methods=["ft", "dp"], shared={"k": 0.5})


def test_a_shared_setting_of_training_reaches_methods_beside_one_that_has_its_own_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithOwnTemperature(Settings):
        temperature: float = setting(1.0, "of the sampling", "our own", gt=0)

    monkeypatch.setattr(METHODS["rp"], "settings_class", WithOwnTemperature)
    cells = planned(tmp_path, methods=["ft", "rp"], seeds=[0], shared={"temperature": 0.5})
    assert [cell.values["temperature"] for cell in cells] == [0.5, 0.5]


def test_without_steps_each_data_set_decides(tmp_path: Path) -> None:
    ft, five = planned(tmp_path, methods=["ft", "ft:epochs=5"], seeds=[0], steps=None)
    assert str(ft.folder.relative_to(tmp_path)) == "x/ft/autosteps/seed0"
    assert "max_steps" not in ft.values
    assert ft.title == "x, ft, seed 0"
    assert five.values["epochs"] == 5
    with pytest.raises(SettingError, match="ft:epochs=5: epochs=5 and max_steps=10: both say how long to train"):
        planned(tmp_path, methods=["ft", "ft:epochs=5"])
    with pytest.raises(SettingError, match="epochs=5 and max_steps=10"):
        planned(tmp_path, shared={"epochs": 5})
