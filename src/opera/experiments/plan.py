"""The runs of a grid of base models, methods, seeds and steps on data sets: their settings and
folders.

    GRID/
      DATA/METHOD/steps500/seed0/       a run; autosteps for an automatic number of steps
      DATA/METHOD/steps500/seed0.log    the log of the run
      MODEL/DATA/METHOD/...             with several base models

A run of a grid is an ordinary run folder, but OPERA deletes its checkpoints when it is finished.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count, product
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from opera.config.recipe import ALIASES, make_recipe, with_full_names
from opera.config.training import TrainSettings
from opera.config.yaml import parse_assignments
from opera.core.arguments import plain, several, text, without_parents
from opera.core.errors import SettingError
from opera.core.terminal import shortened
from opera.data.names import DataName, TableSource, resolved_name, source_name
from opera.experiments.groups import short_name
from opera.methods import DEFAULT_METHOD, METHODS
from opera.run_folder.folder import run_in

Source = TypeVar("Source", bound=DataName)
AXES: Mapping[str, tuple[Any, ...]] = {
    "method": ("ft", DEFAULT_METHOD),
    "seed": (0, 1, 2),
    "max_steps": (None,),
}
"""Settings that differ between the runs of a grid, with their default values."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a grid; ``values`` are the user's settings with method, steps and seed, and
    ``reading`` are the further data sets and the options of lists of pairs, as arguments of
    :func:`opera.adapt`. ``names`` are those of the data set and, of several, the base model, each
    unique within the grid."""

    data: DataName
    model: str
    names: tuple[str, ...]
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

    def call(self) -> dict[str, Any]:
        """The arguments of :func:`opera.adapt`, as JSON for the process of the run."""
        arguments = {"data": self.data, "model": self.model, "out": str(self.folder)}
        return {**arguments, **self.reading, **self.values}

    @property
    def title(self) -> str:
        """The name of the run in messages."""
        steps = "" if self.steps is None else f"{self.steps} steps, "
        return f"{', '.join(self.names)}, {self.label}, {steps}seed {self.seed}"


def canonical_label(label: str) -> str:
    """Spell a label's method as the registry does: ``DP:levels=query`` is ``dp:levels=query``."""
    name, colon, settings = label.strip().partition(":")
    with suppress(SettingError):  # plan_grid reports all mistakes together
        name = METHODS.find(name).name
    return f"{name}{colon}{settings}"


def parse_method(label: str) -> tuple[str, dict[str, Any]]:
    """Parse ``dp`` or ``dp:levels=query:range=10:50`` into the method's name and its settings."""
    name, *parts = re.split(r":(?=[A-Za-z_]\w*=)", canonical_label(label))
    return name, parse_assignments(parts)


def plan_grid(
    data: Sequence[DataName],
    models: Sequence[str],
    out: Path,
    values: Mapping[str, Any],
    methods: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    reading: Mapping[str, Any] = MappingProxyType({}),
    also: Sequence[DataName] = (),
) -> list[PlannedRun]:
    """List the runs and check every recipe; SettingError lists all mistakes.

    The ``method``, ``seed`` and ``max_steps`` of the values are defaults; the arguments override
    them. ``methods`` may be a text with commas. The seed changes last, so that an interrupted grid
    has all runs of its first seeds. Runs of an earlier call stay where they are, even if it had
    another number of models.
    """
    shared = with_full_names(values)
    axes = _axes(shared, methods, seeds, steps)
    sources = {"DATA": _first_names(data), "--model": _first_names(models)}
    for option, choices in {**sources, **axes}.items():
        if not choices:
            raise SettingError(f"{option}: pass at least one value")
        if repeated := [value for index, value in enumerate(choices) if value in choices[:index]]:
            raise SettingError(f"{option}: {shortened(str(repeated[0]))} is given twice")
    labels, numbers, counts = axes.values()
    data_names = _numbered({source: (source, *also) for source in data})
    model_names, arguments = _numbered({m: (m,) for m in models}), {"also": [*also], **reading}
    by_label = _settings_by_label(labels, counts[0], plain(shared))
    runs = []
    for seed, source, model, n_steps, label in product(numbers, data, models, counts, labels):
        by_steps = "autosteps" if n_steps is None else f"steps{n_steps}"
        name, model_name = data_names[source], model_names[model]
        path = Path(name, label.replace(":", ","), by_steps, f"seed{seed}")
        names: tuple[str, ...] = (name,) if len(models) == 1 else (name, model_name)
        new = out / path if len(models) == 1 else out / model_name / path
        places = [new, out / path, *(folder / path for folder in sorted(out.glob("*")))]
        folder = next((place for place in places if _holds(place, model)), new)
        axis_values = {"seed": seed} if n_steps is None else {"max_steps": n_steps, "seed": seed}
        settings = {**by_label[label], **axis_values}
        runs.append(
            PlannedRun(source, model, names, label, n_steps, seed, folder, settings, arguments)
        )
    return runs


def _first_names(sources: Sequence[DataName]) -> list[DataName]:
    """Return each source by its first name, so that ``data`` and ``./data`` are equal."""
    resolved_names = list(map(resolved_name, sources))
    return [sources[resolved_names.index(name)] for name in resolved_names]


def _holds(folder: Path, model: str) -> bool:
    """Whether a folder has a run of a base model."""
    run = run_in(folder)
    return run is not None and resolved_name(run.record.model.source) == resolved_name(model)


def _axes(
    shared: dict[str, Any],
    methods: str | Sequence[str] | None,
    seeds: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> dict[str, list[Any]]:
    """Take labels, seeds and numbers of steps from the settings, unless the arguments have them.

    ``None`` is an automatic number of steps.
    """
    if isinstance(methods, str):
        methods = [label for label in methods.split(",") if label.strip()]

    def values_of(setting: str, argument: str, plural: str, values: Any) -> tuple[Any, ...]:
        default = (shared.pop(setting),) if setting in shared else AXES[setting]
        return default if values is None else several(values, argument, plural)

    labels = values_of("method", "methods", "texts", methods)
    numbers = values_of("seed", "seeds", "whole numbers", seeds)
    counts = values_of("max_steps", "steps", "whole numbers", steps)
    return {
        "--methods": [canonical_label(text(label, "methods")) for label in labels],
        "--seeds": [_parsed("seed", seed) for seed in numbers],
        "--steps": [None if count is None else _parsed("max_steps", count) for count in counts],
    }


def _parsed(name: str, value: Any) -> int:
    """Parse a value of an axis by the rules for recipes."""
    return int(getattr(make_recipe({name: value}).train, name))


def _settings_by_label(
    labels: Sequence[str], steps: int | None, shared: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Combine the settings of a label with the shared settings, and check the recipes."""
    mistakes: list[str] = []
    settings: dict[str, dict[str, Any]] = {}
    label_by_recipe: dict[str, str] = {}
    for label in labels:
        try:
            settings[label] = _settings_of(label, labels, shared)
            recipe = repr(make_recipe({**settings[label], "max_steps": steps}).identity())
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


def _numbered(parts_by_source: Mapping[Source, Sequence[DataName]]) -> dict[Source, str]:
    """Name the folder of each source by its parts; repeated names get numbers."""
    names: dict[Source, str] = {}
    for source, parts in parts_by_source.items():
        name = "+".join(re.sub(r"[:/\\]", "-", _name(part)) for part in parts)
        numbered = (f"{name}-{number}" for number in count(2))
        names[source] = next(n for n in chain([name], numbered) if n not in names.values())
    return names


def _name(source: DataName) -> str:
    is_path = not isinstance(source, TableSource) and not source.startswith("python:")
    if is_path and source_name(source) is None:
        source = str(without_parents(Path(str(source)).absolute()))
    return short_name(source)
