"""docs/paper.md and the recipes: every name exists, every command is a valid run, no item of the paper is left out.

On the page, everything in backticks is checked: a name of the package, a file, a setting (or setting=value), a method,
a measure, or a command. Defaults stand in columns called Setting and Default.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

import opera.diagnostics
import opera.methods
from documents import find, parse
from opera.config.automatic import Situation, resolve
from opera.config.recipe import make_recipe, read_recipes, recipe_names, recipe_path
from opera.config.training import TrainSettings
from opera.config.yaml import parse_assignments, read_recipe
from opera.core.errors import SettingError
from opera.methods import METHODS
from opera.retrieval.measures import parse_measures
from opera.runs.folder import OURS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
RECIPES = {name: recipe_path(name) for name in recipe_names() if "/" not in name}
ABLATIONS = sorted(name for name in RECIPES if name.startswith("dp-"))
SHARED_BY_METHODS = sorted(set(RECIPES) - set(ABLATIONS))
COMMAND_START = ["train", "DATA", "--model", "MODEL", "--out", "RUN"]

TABLE_9: dict[str, tuple[str, tuple[int, int] | None, float, int]] = {
    "nfcorpus": ("random", None, 0.25, 32_000),
    "tripclick-head": ("hard", (100, 1100), 0.25, 32_000),
    "tripclick-torso": ("hard", (100, 1100), 0.25, 32_000),
    "fiqa": ("hard", (10, 100), 0.5, 8_000),
    "triviaqa": ("random", None, 0.25, 16_000),
    "antique": ("hard", (50, 500), 0.25, 16_000),
    "fever": ("hard", (10, 200), 0.25, 32_000),
    "hotpotqa": ("hard", (10, 200), 0.25, 32_000),
}
ALGORITHM_LINES = {"Opera": 16, "SampleQuery": 7, "SampleDocument": 6}
APPENDICES = [
    *(f"A.{number}" for number in range(1, 4)),
    "B",
    *(f"C.{number}" for number in range(1, 5)),
    *(f"D.{number}" for number in range(1, 7)),
    *"EFG",
]


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


@cache
def rows(first_column: str) -> list[dict[str, str]]:
    """Every row of every table on the page whose first column has this head, by column."""
    found, head = [], None
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
        elif head[0] == first_column and not set(line) <= set("|- "):
            assert len(cells) == len(head), line
            found.append(dict(zip(head, cells, strict=True)))
    return found


def first_cells(first_column: str) -> list[str]:
    return [row[first_column] for row in rows(first_column)]


@cache
def fields(name: str) -> list[FieldInfo]:
    """Every declaration of a setting: of a run, or of a method."""
    groups = [TrainSettings.flat_fields, *(method.settings_class.model_fields for method in METHODS.values())]
    return [group[name] for group in groups if name in group]


def takes(field: FieldInfo, value: Any) -> bool:
    annotated: Any = Annotated[field.annotation, field]
    try:
        TypeAdapter(annotated).validate_python(value)
    except ValidationError:
        return False
    return True


def recipe_of(arguments: list[str]) -> Any:
    """Return the recipe that an ``opera train`` command line runs."""
    given = parse(arguments)
    values = read_recipes(given["config"] or [])
    values |= parse_assignments(given["set_"] or [])
    options = ("method", "max_steps", "negatives", "range")
    return make_recipe(values | {name: given[name] for name in options if given[name] is not None})


def problem(token: str) -> str | None:
    """Say what is wrong with something in backticks on the page; ``None`` where nothing is."""
    try:
        if token.startswith("--"):
            recipe_of([*COMMAND_START, *shlex.split(token)])
        elif token.startswith("opera "):
            parse(shlex.split(token)[1:])
        elif token.startswith("opera."):
            find(token)
        elif "/" in token:
            assert (ROOT / token).is_file(), "no such file"
        elif "@" in token:
            parse_measures([token])
        elif "=" in token:
            ((name, value),) = parse_assignments([token]).items()
            assert any(takes(field, value) for field in fields(name)), "no setting takes that value"
        elif "." in token:
            assert token in OURS, "no such file in a run folder"
        else:
            assert token in METHODS or fields(token), "neither a setting nor a method"
    except (AssertionError, AttributeError, SettingError) as error:
        return str(error)
    return None


def test_everything_in_backticks_exists() -> None:
    tokens = set(in_backticks(PAGE)) - {"--"}  # the page speaks of commands that begin so
    assert {token: wrong for token in sorted(tokens) if (wrong := problem(token)) is not None} == {}
    assert sum(token.startswith("opera.") for token in tokens) > 30


@pytest.mark.parametrize(
    "token",
    [
        "opera.methods.static.keep_lowest",
        "opera.nothing.at_all",
        "opera.methods.base.Method.probability",
        "alpha_begin",
        "update_interval=sometimes",
        "levels=documents",
        "k=2",
        "nothing=1",
        "src/opera/recipes/absent.yaml",
        "studies/absent.py",
        "absent.parquet",
        "NDGC@10",
        "opera tarin DATA",
        "opera evaluate RUN DATA --fully",
        "--config absent",
        "--config fiqa --method dp --set k=0.5",
        "--config fiqa --set temprature=0.1",
        "--config fiqa --step 5",
    ],
)
def test_what_does_not_exist_is_found_out(token: str) -> None:
    assert problem(token) is not None


def test_no_item_of_the_paper_is_left_out() -> None:
    assert first_cells("Equation") == [str(number) for number in range(1, 13)]
    assert first_cells("Table") == [str(number) for number in range(1, 27)]
    assert first_cells("Figure") == [str(number) for number in range(1, 5)]
    assert first_cells("Row") == [str(number) for number in range(1, 14)]
    assert first_cells("Appendix") == APPENDICES
    assert set(re.findall(r"--method ([\w+]+)", PAGE)) == set(METHODS)
    assert first_cells("Line") == [
        f"{procedure} {number}" for procedure, count in ALGORITHM_LINES.items() for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("table", ["Equation", "Item", "Line", "Figure", "Appendix"])
def test_every_row_has_an_answer_or_says_that_it_has_none(table: str) -> None:
    assert rows(table)
    for row in rows(table):
        assert row["Here"], row


def test_tables_have_a_command_a_reason_or_are_open() -> None:
    for row in rows("Table"):
        command, result = row["Command"], row["Result of ours"]
        assert in_backticks(command) or "**open**" in command or re.search(r"none:|Table", command), row
        assert "not run here" in result or "NFCorpus" in result or row["Table"] in ("1", "9"), row


def test_what_is_open_is_collected() -> None:
    listed = first_cells("Open")
    assert listed == [f"O{number}" for number in range(1, len(listed) + 1)]
    body = PAGE.partition("## What is open")[0]
    cited = set(re.findall(r"\bO\d+\b", body))
    assert cited <= set(listed)
    assert all(re.match(r", O\d", after) for after in re.findall(r"\*\*open\*\*(.{4})", body))
    assert set(listed) - cited == {"O4", "O5"}, "O4 and O5 speak of whole columns; the others belong to a row"


def test_notes_that_are_cited_exist() -> None:
    assert set(re.findall(r"\(note ([A-Z])\)", PAGE)) <= set(first_cells("Note"))
    cited = {number for group in re.findall(r"\b[Rr]ows? ([\d, and]+)", PAGE) for number in re.findall(r"\d+", group)}
    assert cited <= set(first_cells("Row"))


def test_defaults_on_the_page_are_those_of_the_code() -> None:
    told = set()
    for row in [*rows("The paper"), *rows("Row")]:
        names, defaults = in_backticks(row["Setting"]), row["Default"].split(", ") if row["Default"] else []
        assert len(names) == len(defaults), row
        for name, default in zip(names, defaults, strict=True):
            real = {"auto" if field.default is None else str(field.default) for field in fields(name)}
            assert default in {value.lower() for value in real}, f"{name}: the page has {default}, the code {real}"
            told.add(name)
    own = {name for method in METHODS.values() for name in method.settings_class.model_fields}
    from_the_paper = {
        name
        for name, field in TrainSettings.flat_fields.items()
        if re.search("Appendix|Section|Table|Equation|notes|release", str(field.json_schema_extra))
    }
    assert own | from_the_paper <= told


def test_functions_that_cite_an_equation_stand_in_its_row() -> None:
    by_number = {row["Equation"]: row["Here"] for row in rows("Equation")}
    checked = 0
    for package in (opera.methods, opera.diagnostics):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
                head = (function.__doc__ or "").partition("\n")[0]
                cited = re.search(r"Equation (\d+)", head)
                if cited and function.__module__ == module.name:
                    assert f"`{module.name}.{name}`" in by_number[cited[1]], f"{module.name}.{name} cites {cited[0]}"
                    checked += 1
    assert checked >= 10


class TestRecipes:
    def test_the_page_names_them_all(self) -> None:
        assert set(re.findall(r"--config ([\w-]+)(?![\w/-])", PAGE)) == set(RECIPES)
        assert set(TABLE_9) | {"antique-noisy", "qwen3"} == set(SHARED_BY_METHODS)

    @pytest.mark.parametrize("name", SHARED_BY_METHODS)
    @pytest.mark.parametrize("method", METHODS)
    def test_one_recipe_serves_every_method(self, name: str, method: str) -> None:
        values = read_recipe(RECIPES[name])
        assert "method" not in values
        recipe = make_recipe({**values, "method": method})
        assert recipe.method_settings == METHODS[method].settings_class()

    @pytest.mark.parametrize("name", [*TABLE_9, "antique-noisy"])
    def test_those_of_bge_are_table_9_and_appendix_c_2(self, name: str) -> None:
        settings = SimpleNamespace(**make_recipe(read_recipe(RECIPES[name])).flat())
        negatives, ranks, _, steps = TABLE_9[name.removesuffix("-noisy")]
        assert (settings.negatives, settings.range and tuple(settings.range), settings.max_steps) == (
            negatives,
            ranks,
            steps,
        )
        assert (settings.global_batch_size, settings.trainer) == (64, None)
        assert settings.learning_rate == 1e-6

    @pytest.mark.parametrize("name", SHARED_BY_METHODS)
    def test_what_they_share_is_the_papers(self, name: str) -> None:
        settings = SimpleNamespace(**make_recipe(read_recipe(RECIPES[name])).flat())
        assert settings.temperature == 0.02
        assert settings.mask_known_positives is False
        assert (settings.max_query_length, settings.max_passage_length) == (128, 512)
        assert (settings.warmup_ratio, settings.train_group_size) == (0, 2)
        assert settings.relevant_grade == (3 if name.startswith("antique") else 1)

    def test_those_of_appendices_c_3_and_c_4(self) -> None:
        qwen3 = SimpleNamespace(**make_recipe(read_recipe(RECIPES["qwen3"])).flat())
        assert (qwen3.max_steps, qwen3.learning_rate, qwen3.precision) == (2_000, 1e-5, "bf16")
        assert (qwen3.global_batch_size, qwen3.trainer) == (64, {"gradient_accumulation_steps": 4})
        noisy, clean = (read_recipe(RECIPES[name]) for name in ("antique-noisy", "antique"))
        assert noisy == {**clean, "noise": "grade", "noise_grade": 2}

    @pytest.mark.parametrize("processes", [1, 2, 8])
    @pytest.mark.parametrize("name", SHARED_BY_METHODS)
    def test_a_step_has_64_queries_on_any_number_of_devices(self, name: str, processes: int) -> None:
        settings = make_recipe(read_recipe(RECIPES[name])).train
        batching = resolve(settings, Situation(2_000, "large", "cuda", processes))
        assert batching.queries_per_step(processes) == 64
        per_device = batching.per_device_train_batch_size
        assert per_device == (16 if name == "qwen3" else 64) / processes, "of Qwen3 2 on each of 8 devices, 4 times"

    @pytest.mark.parametrize("name", ABLATIONS)
    def test_ablations_change_dp_and_nothing_else(self, name: str) -> None:
        recipe = make_recipe(read_recipe(RECIPES[name]))
        assert recipe.method == "dp"
        assert recipe.train == TrainSettings()
        assert recipe.method_settings != METHODS["dp"].settings_class()
        METHODS["dp"].check(recipe.method_settings, 1000, 5000)
        make_recipe({**read_recipe(RECIPES[name]), "method": "sp+dp"})
        in_table = [
            recipe_of([*COMMAND_START, *shlex.split(token)])
            for token in in_backticks(PAGE)
            if token.startswith("--config") and "--method dp --set" in token
        ]
        alike = [same for same in in_table if same.method_settings == recipe.method_settings]
        assert alike or name == "dp-document-only"

    @pytest.mark.parametrize("name", RECIPES)
    def test_comments_say_what_how_and_on_which_data(self, name: str) -> None:
        text = RECIPES[name].read_text(encoding="utf-8")
        comment = text[: text.index("\n\n")]
        assert all(line.startswith("#") for line in comment.splitlines())
        assert re.search(r"Tables? \d", comment)
        assert "DATA:" in comment
        assert "paper:" in comment
        commands = re.findall(r"^#     opera (train .*)$", comment, re.MULTILINE)
        assert commands
        for command in commands:
            recipe = recipe_of(shlex.split(command))
            assert parse(shlex.split(command))["config"] == [name]
            if name in TABLE_9 and recipe.method == "sp":
                assert recipe.method_settings.k == TABLE_9[name][2]
        for options in re.findall(r"^#     (--.*?)  ", comment, re.MULTILINE):
            recipe_of([*COMMAND_START, "--config", name, *shlex.split(options)])
