"""Recipes by name and by file, and several at once."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from documents import parse
from opera.config.recipe import PRESETS, make_recipe, override, parse_value, read_recipes, recipe_names, recipe_path
from opera.core.errors import SettingError


def test_a_name_is_operas_recipe_wherever_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fiqa").write_text("seed: 3\n")
    Path("mine.yaml").write_text("seed: 2\n")
    assert recipe_path("fiqa").read_text() != "seed: 3\n"
    assert read_recipes(["./fiqa"]) == {"seed": 3}
    assert read_recipes([Path("mine.yaml")]) == read_recipes([tmp_path / "mine.yaml"]) == {"seed": 2}
    with pytest.raises(SettingError) as caught:
        read_recipes(["fiqua"])
    assert str(caught.value) == (
        "--config fiqua: no such file, and OPERA has no recipe of that name; did you mean 'fiqa'?"
    )


def test_later_recipes_win(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("max_steps: 8000\nlr: 1e-6\nnegatives: hard\n")
    (tmp_path / "model.yaml").write_text("learning_rate: 1e-5\nepochs: 2\n")
    merged = read_recipes([tmp_path / "data.yaml", tmp_path / "model.yaml"])
    assert merged == {"learning_rate": 1e-5, "negatives": "hard", "epochs": 2}
    assert override(merged, {"max_steps": 3}) == {"learning_rate": 1e-5, "negatives": "hard", "max_steps": 3}
    assert read_recipes([]) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("temprature: 1\n", "unknown setting 'temprature'; did you mean 'temperature'?"),
    ],
)
def test_a_mistake_names_its_recipe(content: str, message: str, tmp_path: Path) -> None:
    """Settings that fit only together with those of another recipe are no mistake here."""
    (tmp_path / "range.yaml").write_text("range: 10:50\nmethod: sp\n")
    (tmp_path / "bad.yaml").write_text(content)
    with pytest.raises(SettingError) as caught:
        read_recipes([tmp_path / "range.yaml", tmp_path / "bad.yaml"])
    (line,) = caught.value.lines
    assert line.startswith("--config ")
    assert f"bad.yaml: {message}" in line


def test_the_table_of_models_says_what_their_recipes_hold() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = {
        cells[1].strip("` "): cells
        for line in page.splitlines()
        if (cells := line.split("|"))[1:2] and "models/" in cells[1]
    }
    assert set(rows) == {name for name in recipe_names() if name.startswith("models/")}
    last_prompt = ""
    for name, (_, _, model, _, _, query, document, tokens, precision, rate, _) in rows.items():
        values = read_recipes([name])
        prompts = [cell.strip(" ").strip("`").replace("\\n", "\n") for cell in (query, document)]
        prompts = [{"none": "", "the same": last_prompt}.get(prompt, prompt) for prompt in prompts]
        last_prompt = prompts[0]
        assert prompts == [values.get("query_prompt", ""), values.get("document_prompt", "")], name
        lengths = f"{values.get('max_query_length')}, {values.get('max_passage_length')}"
        assert tokens.strip() == ("whole texts" if lengths == "None, None" else lengths)
        assert precision.strip() == values.get("precision", "auto")
        assert float(rate) == values["learning_rate"]
        commands = re.findall(r"^#     opera (train .*)$", recipe_path(name).read_text(), re.MULTILINE)
        given = [parse(shlex.split(command)) for command in commands]
        assert all(line["model"] == ("FOLDER" if name == "models/static" else model.strip()) for line in given)
        assert given[0]["config"] == [name]
        for line in given:
            make_recipe(read_recipes(line["config"]))


PAPERS_ALONE = {"qwen3": {"trainer"}}
DATA_RECIPES = [name for name in recipe_names() if "/" not in name]


@pytest.mark.parametrize("name", DATA_RECIPES)
def test_beside_a_preset_operas_recipes_keep_what_is_of_the_data(name: str) -> None:
    """The paper's preset changes nothing of a recipe of the paper's; the release's goes before it, one rank later."""
    alone = read_recipes([name])
    paper, release = ({**PRESETS[preset], **read_recipes([name], preset)} for preset in PRESETS)
    assert {**paper, **alone} == paper
    differing = {key for key in alone if release.get(key) != alone[key]}
    assert differing <= {"global_batch_size", "warmup_ratio", "range"} | PAPERS_ALONE.get(name, set())
    if "global_batch_size" in alone:
        assert (release["global_batch_size"], release["warmup_ratio"]) == (128, 0.05)
    if "range" in alone:
        assert parse_value("range", release["range"])[0] == parse_value("range", alone["range"])[0] + 1


def test_a_recipe_of_ones_own_goes_before_a_preset_and_may_name_one(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("preset: release\nnegatives: hard\nrange: 5:50\nglobal_batch_size: 32\n")
    own = read_recipes([tmp_path / "own.yaml"], "release")
    assert (own["range"], own["global_batch_size"]) == ("5:50", 32)
    named = read_recipes([tmp_path / "own.yaml", "fiqa"])
    assert (named["range"], named["global_batch_size"], named["preset"]) == ("11:100", 32, "release")
