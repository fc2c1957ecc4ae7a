"""The runs of a grid of methods, seeds and steps on data sets: their settings and folders.

    GRID/
      DATA/METHOD/steps500/seed0/       a run; autosteps for an automatic number of steps
      DATA/METHOD/steps500/seed0.log    the log of the run

A run of a grid is an ordinary run folder, but OPERA deletes its checkpoints when it is finished.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count, product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opera.config.recipe import ALIASES, make_recipe, with_full_names
from opera.config.training import TrainSettings
from opera.config.yaml import parse_assignments
from opera.core.arguments import plain, several, text
from opera.core.errors import SettingError
from opera.core.paths import without_parents
from opera.core.terminal import shortened
from opera.data.names import source_name
from opera.experiments.analysis import short_name
from opera.methods import DEFAULT_METHOD, METHODS, method_named

AXES: Mapping[str, tuple[Any, ...]] = {
    "method": ("ft", DEFAULT_METHOD),
    "seed": (0, 1, 2),
    "max_steps": (None,),
}
"""Settings that differ between the runs of a grid, with their default values."""


@dataclass(frozen=True)
class GridAxes:
    """The settings that differ between the runs of a data set; ``None`` means automatic steps.

    ``baseline`` is one of the methods, or ``None`` to let the analysis choose.
    """

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: tuple[int | None, ...]
    baseline: str | None = None


@dataclass(frozen=True)
class PlannedRun:
    """A run of a grid; ``values`` are the user's settings with method, steps and seed, and
    ``reading`` are the further data sets and the options of lists of pairs, as arguments of
    :func:`opera.adapt`."""

    data: str
    label: str
    steps: int | None
    seed: int
    folder: Path
    values: Mapping[str, Any]
    reading: Mapping[str, Any]

    @property
    def log(self) -> Path:
        """The log of the run."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def call(self, model: str) -> dict[str, Any]:
        """The arguments of :func:`opera.adapt`, as JSON for the process of the run."""
        arguments = {"data": self.data, "model": model, "out": str(self.folder)}
        return {**arguments, **self.reading, **self.values}

    @property
    def data_name(self) -> str:
        """The data set's name, unique within the grid."""
        return self.folder.parents[2].name

    @property
    def title(self) -> str:
        """The name of the run in messages."""
        steps = "" if self.steps is None else f"{self.steps} steps, "
        return f"{self.data_name}, {self.label}, {steps}seed {self.seed}"


def grid_axes(
    values: Mapping[str, Any],
    methods: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    baseline: str | None = None,
) -> tuple[GridAxes, dict[str, Any]]:
    """Split the values of a recipe into the grid's axes and the settings that all runs share.

    The recipe's ``method``, ``seed`` and ``max_steps`` are defaults; the arguments override them.
    ``methods`` may be a text with commas.
    """
    shared = with_full_names(values)
    if isinstance(methods, str):
        methods = [label for label in methods.split(",") if label.strip()]

    def axis(name: str, argument: str, plural: str, values: Any) -> tuple[Any, ...]:
        default = (shared.pop(name),) if name in shared else AXES[name]
        return default if values is None else several(values, argument, plural)

    labels = [
        canonical_label(text(label, "methods"))
        for label in axis("method", "methods", "texts", methods)
    ]
    numbers = [_parsed("seed", seed) for seed in axis("seed", "seeds", "whole numbers", seeds)]
    counts = [
        None if count is None else _parsed("max_steps", count)
        for count in axis("max_steps", "steps", "whole numbers", steps)
    ]
    against = None if baseline is None else canonical_label(text(baseline, "baseline"))
    if against is not None and against not in labels:
        known = ", ".join(labels)
        raise SettingError(f"--baseline {baseline}: must be one of the methods: {known}")
    return GridAxes(tuple(labels), tuple(numbers), tuple(counts), against), shared


def _parsed(name: str, value: Any) -> int:
    """Parse a value of an axis by the rules for recipes."""
    return int(make_recipe({name: value}).train.flat()[name])


def canonical_label(label: str) -> str:
    """Spell a label's method as the registry does: ``DP:levels=query`` is ``dp:levels=query``."""
    name, colon, settings = label.strip().partition(":")
    with suppress(SettingError):  # plan_grid reports all mistakes together
        name = method_named(name).name
    return f"{name}{colon}{settings}"


def parse_method(label: str) -> tuple[str, dict[str, Any]]:
    """Parse ``dp`` or ``dp:levels=query:range=10:50`` into the method's name and its settings."""
    name, *parts = re.split(r":(?=[A-Za-z_]\w*=)", canonical_label(label))
    return name, parse_assignments(parts)


def plan_grid(
    data: Sequence[str],
    axes: GridAxes,
    out: Path,
    shared: Mapping[str, Any],
    reading: Mapping[str, Any] = MappingProxyType({}),
    also: Sequence[str] = (),
) -> list[PlannedRun]:
    """List the runs and check every recipe; SettingError lists all mistakes.

    The seed changes last, so that an interrupted grid has all runs of its first seeds.
    """
    # "data" and "./data" are the same folder
    places = [os.path.realpath(source) if os.path.lexists(source) else source for source in data]
    first = [data[places.index(place)] for place in places]
    options: dict[str, Sequence[Any]] = {"DATA": first}
    options |= {f"--{name}": getattr(axes, name) for name in ("methods", "seeds", "steps")}
    for option, choices in options.items():
        if not choices:
            raise SettingError(f"{option}: pass at least one value")
        if repeated := [value for index, value in enumerate(choices) if value in choices[:index]]:
            raise SettingError(f"{option}: {shortened(str(repeated[0]))} is given twice")
    names, arguments = _folder_names(data, also), {"also": [*also], **reading}
    by_label = _settings_by_label(axes, plain(with_full_names(shared)))
    runs = []
    for seed, source, steps, label in product(axes.seeds, data, axes.steps, axes.methods):
        by_steps = "autosteps" if steps is None else f"steps{steps}"
        folder = out / names[source] / label.replace(":", ",") / by_steps / f"seed{seed}"
        axis_values = {"seed": seed} if steps is None else {"max_steps": steps, "seed": seed}
        values = {**by_label[label], **axis_values}
        runs.append(PlannedRun(source, label, steps, seed, folder, values, arguments))
    return runs


def _settings_by_label(axes: GridAxes, shared: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Combine the settings of a label with the shared settings, and check the recipes."""
    mistakes: list[str] = []
    settings: dict[str, dict[str, Any]] = {}
    label_by_recipe: dict[str, str] = {}
    for label in axes.methods:
        try:
            settings[label] = _settings_of(label, axes.methods, shared)
            recipe = repr(make_recipe({**settings[label], "max_steps": axes.steps[0]}).identity())
        except SettingError as error:
            mistakes += [f"{shortened(label)}: {line}" for line in error.lines]
            continue
        if (other := label_by_recipe.setdefault(recipe, label)) != label:
            both = f"{shortened(other)} and {shortened(label)}"
            mistakes.append(f"--methods: {both} have the same settings; pass one of them")
    if mistakes:
        raise SettingError(*mistakes)
    return settings


def _settings_of(label: str, labels: Sequence[str], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of a label with the shared settings, except those of other methods only.

    A setting of training applies to every method, even if another method has a setting of its name.
    """
    if not re.fullmatch(r"[^\s/\\.][^\s/\\]*", label) or not label.isprintable():
        raise SettingError(
            "becomes the name of a folder, so it must not hold spaces, slashes or control "
            "characters; use --set for such settings"
        )
    method, method_settings = parse_method(label)
    if on_axes := [name for name in method_settings if ALIASES.get(name, name) in AXES]:
        raise SettingError(
            f"{on_axes[0]} differs between runs; use --methods, --steps and --seeds instead"
        )
    fields = {
        name: METHODS[name].settings_class.model_fields.keys()
        for name in {label.partition(":")[0] for label in labels} & METHODS.keys()
    }
    applicable = fields.get(method, set()) | TrainSettings.model_fields.keys()
    of_other_methods = set().union(*fields.values()) - applicable
    common = {name: value for name, value in shared.items() if name not in of_other_methods}
    return {**common, **with_full_names(method_settings), "method": method}


def _folder_names(data: Sequence[str], also: Sequence[str]) -> dict[str, str]:
    """Name the folder of each data set, with those of ``also``; repeated names get numbers."""
    names: dict[str, str] = {}
    for source in data:
        name = "+".join(re.sub(r"[:/\\]", "-", _name(part)) for part in (source, *also))
        numbered = (f"{name}-{number}" for number in count(2))
        names[source] = next(n for n in chain([name], numbered) if n not in names.values())
    return names


def _name(source: str) -> str:
    no_path = source.startswith("python:") or source_name(source) is not None
    return short_name(source if no_path else str(without_parents(Path(source).absolute())))
