"""What commands share: how settings of several sources merge, and how Ctrl-C ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from opera.cli.options import collect_values, interruptible, load_training_data
from opera.core.errors import DataError, ModelError


def test_set_overrides_the_recipe_and_options_override_both(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("method: sp\nk: 0.5\nlr: 0.1\nsteps: 3\n")
    values = collect_values([str(recipe)], ["learning_rate=0.2", "k=0.4"], max_steps=9, method=None)
    assert values == {"method": "sp", "k": 0.4, "learning_rate": 0.2, "max_steps": 9}
    assert collect_values(None, None, method=None) == {}


def test_epochs_or_steps_on_the_command_line_replace_either_of_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    for length in ("steps: 300", "epochs: 3"):
        recipe.write_text(f"{length}\nlr: 0.1\n")
        assert collect_values([str(recipe)], None, epochs=5.0) == {"epochs": 5.0, "learning_rate": 0.1}
        assert collect_values([str(recipe)], ["steps=70"]) == {"max_steps": 70, "learning_rate": 0.1}
    both = collect_values(None, None, epochs=5.0, max_steps=7)
    assert both == {"epochs": 5.0, "max_steps": 7}, "for make_recipe to refuse"


def test_the_model_is_located_before_the_data_are_read(beir: Path, static_model: Path, tmp_path: Path) -> None:
    assert load_training_data(str(beir), str(static_model)).training_split().n_queries == 40
    with pytest.raises(ModelError, match="no such model folder"):
        load_training_data(str(tmp_path / "no-data"), str(tmp_path / "no-model"))
    with pytest.raises(DataError, match="no such file or folder"):
        load_training_data(str(tmp_path / "no-data"), str(static_model))


def test_ctrl_c_prints_how_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, interruptible(lambda: "start again"):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "\nopera: interrupted; start again\n"
    with pytest.raises(ValueError, match="other"), interruptible(lambda: "never asked"):
        raise ValueError("other")
