"""The example of a method passes the contract and works everywhere that takes methods: one class and one line."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import opera
from opera.cli import app
from opera.core.errors import SettingError
from opera.methods import METHODS, Method, method_named
from opera.methods.contract import check_method

EXAMPLE = Path(__file__).parent / "method_example.py"
FAST: dict[str, Any] = {"max_steps": 4, "per_device_train_batch_size": 8}


@pytest.fixture
def softmax() -> Iterator[type[Method[Any]]]:
    before = dict(METHODS)
    yield runpy.run_path(str(EXAMPLE))["SoftmaxSampling"]
    METHODS.clear()
    METHODS.update(before)


@pytest.mark.parametrize("sharpness", [0.0, 5.0, 20.0])
def test_it_passes_the_contract(softmax: type[Method[Any]], sharpness: float) -> None:
    check_method(softmax, softmax.settings_class.parse({"sharpness": sharpness}))


def test_training_takes_it_in_any_case(
    softmax: type[Method[Any]], beir: Path, static_model: Path, tmp_path: Path
) -> None:
    run = opera.adapt(beir, model=static_model, method="SoftMax", out=tmp_path / "run", sharpness=2.0, **FAST)
    assert run.finished
    assert (run.settings["method"], run.settings["sharpness"]) == ("softmax", 2.0)
    assert run.trace().column_names == ["step", "loss", "learning_rate", "seconds"]
    drawn = run.pairs()
    assert sum(drawn["times_drawn"].to_pylist()) == 4 * 8
    record = run.sampling()
    assert record is not None
    assert record.steps.tolist() == [0, 3]


def test_commands_list_its_settings_and_correct_its_name(softmax: type[Method[Any]]) -> None:
    listing = CliRunner().invoke(app, ["train", "--help-settings"], env={"COLUMNS": "200"})
    assert listing.exit_code == 0, listing.output
    assert "sharpness" in listing.output
    with pytest.raises(SettingError, match="did you mean 'softmax'"):
        method_named("sofmax")


def test_an_installed_package_registers_it_by_an_entry_point(
    softmax: type[Method[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    del METHODS["softmax"]
    entry = EntryPoint("softmax", "a_package:SoftmaxSampling", "opera.methods")
    monkeypatch.setattr(EntryPoint, "load", lambda self: softmax)
    monkeypatch.setattr("opera.methods.registry.entry_points", lambda group: [entry] if group == entry.group else [])
    assert method_named("Softmax") is softmax
    assert METHODS["softmax"] is softmax
