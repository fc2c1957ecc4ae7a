"""Recipes as files: those of users, those that come with OPERA, and several merged into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opera.config.presets import fitted_to_preset, without_replaced
from opera.config.recipe import unknown_name, with_full_names
from opera.config.training import TrainSettings
from opera.config.yaml import read_recipe
from opera.core.errors import SettingError, nearest
from opera.core.paths import expand_user, kind_of_place
from opera.core.settings import Settings, explain
from opera.core.terminal import shortened
from opera.methods import METHODS

HOME = Path(__file__).parents[1] / "recipes"
"""The folder of OPERA's own recipes, within the package."""


def recipe_names() -> list[str]:
    """List OPERA's own recipes: ``fiqa``, ``models/bge-m3``, ..."""
    return sorted(
        path.relative_to(HOME).with_suffix("").as_posix() for path in HOME.rglob("*.yaml")
    )


def recipe_path(source: str | Path) -> Path:
    """Return the file of a recipe.

    Args:
        source: a name of :func:`recipe_names`, or a file; a file whose name is also a recipe's is given as ``./NAME``.

    Raises:
        SettingError: if there is neither.
    """
    text = expand_user(source, "--config")
    if text in recipe_names():
        return HOME / f"{text}.yaml"
    if kind_of_place(Path(text)) is None:
        raise SettingError(
            f"--config {shortened(text)}: no such file, and OPERA has no recipe of that name"
            f"{nearest(text, recipe_names())}"
        )
    return Path(text)


def read_recipes(sources: Iterable[str | Path], preset: str | None = None) -> dict[str, Any]:
    """Read recipes and merge their settings, under their full names; a later recipe replaces settings of earlier ones.

    OPERA's own recipes of data sets hold the paper's settings. Beside a preset they leave to it what it is about:
    :func:`opera.config.presets.fitted_to_preset`. Files of users stay as they are.

    Args:
        sources: what :func:`recipe_path` takes.
        preset: the preset that is given besides; ``None`` for that of the recipes, if one names it.

    Raises:
        SettingError: naming the recipe that cannot be read, or whose settings are unknown or out of their bounds.
    """
    read = []
    for source in sources:
        path = recipe_path(source)
        read.append((path, _checked(read_recipe(path), f"--config {shortened(str(source))}")))
        preset = preset or read[-1][1].get("preset")
    merged: dict[str, Any] = {}
    for path, values in read:
        merged = override(
            merged, fitted_to_preset(values, preset) if path.parent == HOME else values
        )
    return merged


def override(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Replace settings by later ones, also by those that say the same in another way (``epochs``)."""
    return {**without_replaced(earlier, later), **later}


def _checked(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Check each setting of a recipe by itself, because the merged ones no longer say where they come from."""
    try:
        full = with_full_names(values)
    except SettingError as error:
        raise SettingError(*(f"{place}: {line}" for line in error.lines)) from None
    mistakes = [mistake for name, value in full.items() for mistake in _mistakes(name, value)]
    if mistakes:
        raise SettingError(*(f"{place}: {mistake}" for mistake in mistakes))
    return full


def _mistakes(name: str, value: Any) -> list[str]:
    """List what is wrong with one setting, whatever the others are."""
    if name == "method":
        return []
    own = [
        method.settings_class
        for method in METHODS.values()
        if name in method.settings_class.model_fields
    ]
    groups: list[type[Settings]] = [TrainSettings] if name in TrainSettings.flat_fields else own
    if not groups:
        known = [
            field for method in METHODS.values() for field in method.settings_class.model_fields
        ]
        return [unknown_name(name, [*TrainSettings.flat_fields, *known])]
    try:
        groups[0](**{name: value})
    except ValidationError as error:
        return [
            line for line in explain(error, groups[0].model_fields) if line.startswith(f"{name}: ")
        ]
    return []
