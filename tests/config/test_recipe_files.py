"""Recipes by name and by file, and several at once; they and ``--set`` read YAML 1.2."""

import re
import shlex
from pathlib import Path

import pytest

from documents import parse
from opera.config.recipe import make_recipe, override, recipe, recipe_path, recipes_by_name
from opera.config.yaml import parse_assignments, parse_scalar
from opera.core.registry import load_extensions, register_recipes


def test_a_name_is_operas_recipe_wherever_the_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/bge-m3").write_text("seed: 3\n")
    Path("mine.yaml").write_text("seed: 2\n")
    assert recipe_path("models/bge-m3").read_text() != "seed: 3\n"
    assert recipe("./models/bge-m3") == {"seed": 3}
    assert recipe(Path("mine.yaml")) == recipe(tmp_path / "mine.yaml") == {"seed": 2}


def test_later_recipes_win(tmp_path):
    (tmp_path / "data.yaml").write_text("max_steps: 8000\nlr: 1e-6\nnegatives: hard\n")
    (tmp_path / "model.yaml").write_text("learning_rate: 1e-5\nepochs: 2\n")
    merged = recipe(tmp_path / "data.yaml", tmp_path / "model.yaml")
    assert merged == {"learning_rate": 1e-5, "negatives": "hard", "epochs": 2}
    assert override(merged, {"max_steps": 3}) == {"learning_rate": 1e-5, "negatives": "hard", "max_steps": 3}
    assert recipe() == {}
    assert recipe(tmp_path / "data.yaml", {"lr": 1}) == {**recipe(tmp_path / "data.yaml"), "learning_rate": 1}


def test_the_table_of_models_says_what_their_recipes_hold():
    load_extensions()  # a command there has a recipe of the reproduction
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = {
        cells[1].strip("` "): cells
        for line in page.splitlines()
        if (cells := line.split("|"))[1:2] and "models/" in cells[1]
    }
    assert set(rows) == {name for name in recipes_by_name() if name.startswith("models/")}
    last_prompt = ""
    for name, (_, _, model, _, query, document, tokens, precision, rate, _) in rows.items():
        values = recipe(name)
        prompts = [cell.strip(" ").strip("`").replace("\\n", "\n") for cell in (query, document)]
        prompts = [{"none": "", "the same": last_prompt}.get(prompt, prompt) for prompt in prompts]
        last_prompt = prompts[0]
        assert prompts == [values.get("query_prompt", ""), values.get("document_prompt", "")], name
        lengths = f"{values.get('max_query_length')}, {values.get('max_passage_length')}"
        assert tokens.strip() == ("whole texts" if lengths == "None, None" else lengths)
        assert precision.strip() == values.get("precision", "auto")
        assert float(rate) == values["learning_rate"]
        commands = re.findall(r"^#     opera (train .*)$", recipe_path(name).read_text(), re.MULTILINE)
        examples = [parse(shlex.split(command)) for command in commands]
        assert all(line["model"] == ("FOLDER" if name == "models/static" else model.strip()) for line in examples)
        assert examples[0]["config"] == [name]
        for line in examples:
            make_recipe(recipe(*line["config"]))


def test_named_recipes_serve_several_methods(tmp_path, monkeypatch):
    (tmp_path / "named.yaml").write_text("k: 0.5\ntemperature: 0.02\n")
    folders = []
    monkeypatch.setattr("opera.core.registry.RECIPE_FOLDERS", folders)
    monkeypatch.setattr("opera.config.recipe.RECIPE_FOLDERS", folders)
    register_recipes(tmp_path)
    assert recipe("named", methods=["ft"]) == {"temperature": 0.02}
    assert recipe("named", methods=["ft", "sp"]) == recipe("named") == {"k": 0.5, "temperature": 0.02}
    (tmp_path / "mine.yml").write_text("k: 0.5\n")
    assert recipe(tmp_path / "mine.yml", methods=["ft"]) == {"k": 0.5}, "a mistake in a user's file stays an error"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10:50", "10:50"), ("1e-6", 1e-6), ("5", 5), ("010", 10), ("true", True), ("on", "on"), ("null", None),
        ("", None), ("[1", "[1"), ("'5'", "5"), ("2024-01-01", "2024-01-01"),
    ],
)  # fmt: skip
def test_a_scalar_is_a_decimal_number_a_boolean_null_or_a_text(text, value):
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


def test_an_assignment_keeps_what_follows_the_first_equals_sign():
    assert parse_assignments(["report_to=a=b", " seed = 2"]) == {"report_to": "a=b", "seed": 2}
