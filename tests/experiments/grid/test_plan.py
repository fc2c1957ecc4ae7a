"""Which cells a grid has, with which settings, and where their runs lie."""

import pytest

from grids import planned
from opera.core.errors import SettingError


def test_seeds_come_outermost_and_each_cell_has_its_folder(tmp_path):
    cells = planned(tmp_path, methods=["ft", "sp:k=0.5"], steps=[5, 10], values={"lr": 0.1})
    folders = [str(cell.folder.relative_to(tmp_path)) for cell in cells]
    assert folders[:3] == ["x/ft/steps5/seed0", "x/sp,k=0.5/steps5/seed0", "x/ft/steps10/seed0"]
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
    assert len(set(folders)) == 8
    assert cells[1].values == {"learning_rate": 0.1, "k": 0.5, "method": "sp", "max_steps": 5, "seed": 0}
    assert cells[1].log == tmp_path / "x/sp,k=0.5/steps5/seed0.log"


def test_data_sets_of_one_name_and_odd_names_stay_inside_the_grid(tmp_path):
    names_by_source = {"a/x": "x", "b/x": "x-2", "b/x.jsonl": "x-3", "python:json": "python-json", "/": "-",
                       "c/é [b] %s": "é [b] %s", "irds:o/x": "x-4", "hf:..": "hf-.."}  # fmt: skip
    cells = planned(tmp_path, data=list(names_by_source), methods=["ft"], seeds=[0])
    assert [cell.folder.relative_to(tmp_path).parts[0] for cell in cells] == list(names_by_source.values())
    assert all(len(cell.folder.relative_to(tmp_path).parts) == 4 for cell in cells)


def test_a_shared_setting_of_a_method_applies_to_the_methods_that_have_it(tmp_path):
    cells = planned(tmp_path, methods=["ft", "rp", "sp:k=0.75", "dp"], seeds=[0], values={"k": 0.5, "soft": False})
    special = [{name: cell.values[name] for name in ("k", "soft") if name in cell.values} for cell in cells]
    assert special == [{}, {"k": 0.5}, {"k": 0.75}, {"soft": False}]
    with pytest.raises(SettingError, match="setting 'k' applies only to"):
        planned(tmp_path, methods=["ft", "dp"], values={"k": 0.5})


def test_without_steps_each_data_set_decides(tmp_path):
    ft, five_epochs = planned(tmp_path, methods=["ft", "ft:epochs=5"], seeds=[0], steps=None)
    assert str(ft.folder.relative_to(tmp_path)) == "x/ft/autosteps/seed0"
    assert "max_steps" not in ft.values
    assert five_epochs.values["epochs"] == 5
    with pytest.raises(SettingError, match="epochs=5 and max_steps=10: both say how long to train"):
        planned(tmp_path, values={"epochs": 5})
