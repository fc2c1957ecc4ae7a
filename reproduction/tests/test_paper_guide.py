"""reproduction/README.md and the recipes: what it names exists, defaults are those of the code, no item is left out."""

import importlib
import inspect
import pkgutil
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import typer.main
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

import opera.methods
import opera_paper
import opera_paper.extension  # registers the recipes
from documents import ROOT, find, parse
from opera.config.automatic import Situation, resolve
from opera.config.optimisation import is_trainer_field
from opera.config.recipe import make_recipe, recipe, recipes_by_name
from opera.config.training import TrainSettings
from opera.config.yaml import parse_assignments, read_recipe
from opera.core.errors import SettingError
from opera.methods import DEFAULT_METHOD, METHODS
from opera.retrieval.measures import parse_measures
from opera.run_folder.folder import RUN_NAMES
from opera_paper.cli import app

PAGE = (ROOT / "reproduction" / "README.md").read_text(encoding="utf-8")
TOKENS = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)) - {"opera", "opera-paper", "opera train"})
REPRODUCE: Any = typer.main.get_command(app)
OPTIONS = {name for option in REPRODUCE.commands["reproduce"].params for name in option.opts}
HOME = Path(opera_paper.__file__).parent / "recipes"
RECIPES = {name: path for name, path in recipes_by_name().items() if path.parent == HOME}
PRESETS = ("paper", "release")
ABLATIONS = sorted(name for name in RECIPES if name.startswith("dp-"))
SHARED_BY_METHODS = sorted(set(RECIPES) - set(ABLATIONS) - set(PRESETS))

PAPERS = {
    "max_query_length": 128,
    "max_passage_length": 512,
    "cbs_pool": 10_000,
    "levels": "both",
    "soft": True,
    "keep": 200,
}
"""The paper's values that no preset holds."""
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


def rows(first_column: str) -> list[dict[str, str]]:
    """Every row of every table on the page whose first column has this head, by column."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        head, _, *cells = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines())
        if head[0] == first_column:
            found += [dict(zip(head, row, strict=True)) for row in cells]
    return found


def numbered(first_column: str) -> list[str]:
    """The first cells of these tables; ``Opera 1-3`` stands for three."""
    cells = []
    for row in rows(first_column):
        name, first, last = re.fullmatch(r"(\D*)(\d+)(?:-(\d+))?", row[first_column]).groups()
        cells += [f"{name}{number}" for number in range(int(first), int(last or first) + 1)]
    return cells


def fields(name: str) -> list[FieldInfo]:
    """Every declaration of a setting: of a run, or of a method."""
    groups = [TrainSettings.model_fields, *(method.settings_class.model_fields for method in METHODS.values())]
    return [group[name] for group in groups if name in group]


def takes(field: FieldInfo, value: Any) -> bool:
    annotated: Any = Annotated[field.annotation, field]
    try:
        TypeAdapter(annotated).validate_python(value)
    except ValidationError:
        return False
    return True


def recipe_of(options: str, start: str = "DATA --model MODEL --out RUN ") -> Any:
    """Return the recipe that ``opera train`` runs with these options."""
    given = parse(["train", *shlex.split(start + options)])
    named = {name: given[name] for name in ("method", "max_steps", "negatives", "range") if given[name] is not None}
    values = recipe(*given["config"] or [], parse_assignments(given["set_"] or []), named)
    methods = [values.get("method", DEFAULT_METHOD)]
    return make_recipe(recipe(*given["config"] or [], parse_assignments(given["set_"] or []), named, methods=methods))


def flat(name: str) -> SimpleNamespace:
    return SimpleNamespace(**make_recipe(read_recipe(RECIPES[name])).flat())


def problem(token: str) -> str | None:
    """Say what is wrong with something in backticks on the page; ``None`` where nothing is."""
    try:
        if token.startswith("--"):
            assert token.split()[0] in OPTIONS or recipe_of(token)
        elif token.startswith("opera-paper "):
            parse(shlex.split(token)[1:], app)
        elif token.startswith("opera "):
            parse(shlex.split(token)[1:])
        elif token.startswith(("opera.", "opera_paper.")):
            find(token)
        elif "/" in token:
            assert (ROOT / token).is_file(), "no such file"
        elif "@" in token:
            parse_measures([token])
        elif "=" in token:
            ((name, value),) = parse_assignments([token]).items()
            known = any(takes(field, value) for field in fields(name))
            assert known or is_trainer_field(name), "no setting takes that value"
        elif "." in token:
            assert token in RUN_NAMES, "no such file in a run folder"
        else:
            assert token in METHODS or fields(token), "neither a setting nor a method"
    except (AssertionError, AttributeError, KeyError, SettingError) as error:
        return str(error)
    return None


def test_everything_in_backticks_exists():
    assert {token: wrong for token in TOKENS if (wrong := problem(token)) is not None} == {}
    assert sum(token.startswith(("opera.", "opera_paper.")) for token in TOKENS) > 30


def test_no_item_of_the_paper_is_left_out():
    lines = {"Opera": 16, "SampleQuery": 7, "SampleDocument": 6}
    assert numbered("Line") == [f"{name} {line}" for name, count in lines.items() for line in range(1, count + 1)]
    for column, count in {"Equation": 12, "Table": 26, "Figure": 4}.items():
        assert numbered(column) == [str(number) for number in range(1, count + 1)]
    errata = PAGE.partition("\n## Errata\n")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d+)\. ", errata, re.MULTILINE) == [str(number) for number in range(1, 14)]
    assert set(re.findall(r"--config ([\w-]+)(?![\w/-])", PAGE)) == set(RECIPES)


def test_defaults_on_the_page_are_those_of_the_code():
    told = set()
    for row in rows("The paper"):
        names, defaults = re.findall(r"`(\w+)`", row["Setting"]), row["Default"].split(", ") if row["Default"] else []
        for name, default in zip(names, defaults, strict=True):
            real = {("auto" if field.default is None else str(field.default)).lower() for field in fields(name)}
            assert default in real, f"{name}: the page has {default}, the code {real}"
            told.add(name)
    others = recipe("paper") | PAPERS
    own = {name for method in METHODS.values() for name in method.settings_class.model_fields}
    from_the_paper = {
        name
        for name, field in TrainSettings.model_fields.items()
        if re.search("Appendix|Section|Table|Equation|notes|release", str(field.json_schema_extra))
    }
    for name in (own | from_the_paper) - told:
        assert {field.default for field in fields(name)} == {others[name]}, (
            f"{name}: the page does not say where it differs"
        )


def test_functions_that_cite_an_equation_stand_in_its_row():
    by_number = {row["Equation"]: row["Code"] for row in rows("Equation")}
    checked = 0
    for package in (opera.methods, opera_paper):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
                cited = re.search(r"Equation (\d+)", (function.__doc__ or "").partition("\n")[0])
                if cited and function.__module__ == module.name:
                    assert f"`{module.name}.{name}`" in by_number[cited[1]], f"{module.name}.{name} cites {cited[0]}"
                    checked += 1
    assert checked >= 10


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_a_preset_fits_every_method_and_is_as_on_the_page(preset, method):
    settings = recipe(preset, {"method": method}, methods=[method])
    flat = make_recipe(settings).flat()
    assert (flat["temperature"], flat["mask_known_positives"], flat["guard"]) == (0.02, False, False)
    assert {**flat, **settings} == flat
    heads = ("both", {"paper": "the paper's text", "release": "the release"}[preset])
    listed = " ".join(row["settings"] for row in rows("preset") if row["preset"] in heads)
    on_the_page = recipe(parse_assignments(re.findall("`([^`]+)`", listed)), {"method": "dp"})
    assert on_the_page == recipe(preset)


class TestRecipes:
    @pytest.mark.parametrize("name", SHARED_BY_METHODS)
    def test_one_recipe_serves_every_method_and_any_number_of_devices(self, name):
        values = read_recipe(RECIPES[name])
        assert "method" not in values
        for method in METHODS:
            assert make_recipe({**values, "method": method}).method_settings == METHODS[method].settings_class()
        for processes in (1, 2, 8):
            batching = resolve(make_recipe(values).train, Situation(2_000, "large", "cuda", processes))
            assert batching.queries_per_step(processes) == 64
            assert batching.per_device_train_batch_size == (16 if name == "qwen3" else 64) / processes

    @pytest.mark.parametrize("name", SHARED_BY_METHODS)
    def test_they_are_table_9_and_appendix_c(self, name):
        settings = flat(name)
        assert (settings.temperature, settings.mask_known_positives, settings.global_batch_size) == (0.02, False, 64)
        assert (settings.max_query_length, settings.max_passage_length) == (128, 512)
        assert (settings.warmup_ratio, settings.train_group_size) == (0, 2)
        assert settings.relevant_grade == (3 if name.startswith("antique") else 1)
        if name == "qwen3":
            assert (settings.max_steps, settings.learning_rate, settings.precision) == (2_000, 1e-5, "bf16")
            assert settings.trainer == {"gradient_accumulation_steps": 4}
            return
        negatives, ranks, _, steps = TABLE_9[name.removesuffix("-noisy")]
        assert (settings.negatives, settings.range and tuple(settings.range)) == (negatives, ranks)
        assert (settings.max_steps, settings.learning_rate, settings.trainer) == (steps, 1e-6, None)

    @pytest.mark.parametrize("name", ABLATIONS)
    def test_ablations_change_dp_and_nothing_else(self, name):
        recipe = make_recipe(read_recipe(RECIPES[name]))
        assert recipe.method == "dp"
        assert recipe.train == TrainSettings()
        assert recipe.method_settings != METHODS["dp"].settings_class()
        METHODS["dp"].check(recipe.method_settings, 1000, 5000)
        make_recipe({**read_recipe(RECIPES[name]), "method": "sp+dp"})
