"""What differs between the cells of a grid: methods with settings of their own, seeds, and numbers of steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from opera.config.presets import with_preset
from opera.config.recipe import ALIASES, make_recipe, with_full_names
from opera.config.yaml import parse_assignments
from opera.core.errors import SettingError
from opera.core.terminal import shortened
from opera.methods import method_named

DEFAULT_METHODS, DEFAULT_SEEDS = ("ft", "dp"), (0, 1, 2)
AXIS_SETTINGS = ("method", "max_steps", "seed")
"""Settings that differ between cells, so that all cells cannot share them."""


@dataclass(frozen=True)
class GridAxes:
    """What differs between the cells of one data set.

    Attributes:
        methods: labels of methods, with settings of their own behind colons: ``sp:k=0.5``.
        seeds: seeds.
        steps: numbers of optimizer steps; ``None`` for as many as the settings and the data say.
    """

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: tuple[int | None, ...]


def grid_axes(
    values: Mapping[str, Any],
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> tuple[GridAxes, dict[str, Any]]:
    """Split the values of a recipe into the grid's axes and the settings that all cells share.

    The recipe's ``method``, ``seed`` and ``max_steps`` are defaults; the arguments override them.

    Args:
        values: settings by name, as a recipe or keyword arguments hold them.
        methods: methods; ``None`` takes the recipe's, else ``ft`` and ``dp``.
        seeds: seeds; ``None`` takes the recipe's, else 0, 1 and 2.
        steps: numbers of optimizer steps; ``None`` takes the recipe's or its preset's, else automatic ones.

    Returns:
        The axes, with methods spelt as in the registry and numbers as integers, and the shared settings.

    Raises:
        SettingError: if a seed or a number of steps is out of range.
    """
    shared = with_full_names(values)
    given = {name: (shared.pop(name),) for name in AXIS_SETTINGS if name in shared}
    default_steps = (with_preset(shared, ["max_steps"]).get("max_steps"),)
    labels = given.get("method", DEFAULT_METHODS) if methods is None else methods
    axes = GridAxes(
        methods=tuple(canonical_label(str(label)) for label in labels),
        seeds=tuple(
            parsed_axis("seed", seed)
            for seed in (given.get("seed", DEFAULT_SEEDS) if seeds is None else seeds)
        ),
        steps=tuple(
            None if count is None else parsed_axis("max_steps", count)
            for count in (given.get("max_steps", default_steps) if steps is None else steps)
        ),
    )
    return axes, shared


def parsed_axis(name: str, value: Any) -> int:
    """Read a value of an axis as a recipe does: ``1e3`` is 1000.

    Raises:
        SettingError: if it is out of range.
    """
    return int(make_recipe({name: value}).train.flat()[name])


def canonical_label(text: str) -> str:
    """Return a method's label with the method spelt as in the registry: ``DP:levels=query`` is ``dp:levels=query``."""
    name, colon, settings = text.strip().partition(":")
    with suppress(SettingError):  # plan_grid reports it, with all other mistakes
        name = method_named(name).name
    return f"{name}{colon}{settings}"


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Parse ``dp`` or ``dp:levels=query:range=10:50`` into the method's name and its settings."""
    name, *parts = re.split(r":(?=[A-Za-z_]\w*=)", canonical_label(text))
    return name, parse_assignments(parts)


def check_lists(options: Mapping[str, Sequence[Any]]) -> None:
    """Check options that take several values, by the option's name: at least one, and none twice.

    Raises:
        SettingError: naming the first option that breaks the rule.
    """
    for option, values in options.items():
        if not values:
            raise SettingError(f"{option}: give at least one")
        if repeated := [value for index, value in enumerate(values) if value in values[:index]]:
            raise SettingError(f"{option}: {shortened(str(repeated[0]))} is given twice")


def axis_setting(values: Mapping[str, Any]) -> str | None:
    """The first setting, as the user spelt it, that differs between cells."""
    return next((name for name in values if ALIASES.get(name, name) in AXIS_SETTINGS), None)
