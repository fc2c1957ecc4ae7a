"""Plan a grid of methods, seeds and steps: which cells it has, with which settings, and where each one's run lies.

    GRID/
      grid.json                     the model, the settings that all cells share, and the list of cells
      DATA/METHOD/steps500/seed0/   a run; autosteps instead of steps500 where the number is automatic
      DATA/METHOD/steps500/seed0.log

Every cell is an ordinary run folder, except that its checkpoints are deleted once it is finished.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from opera.config.recipe import make_recipe, with_full_names
from opera.config.training import TrainSettings
from opera.core.errors import OtherFormatError, RunFolderError, SettingError
from opera.core.terminal import shortened
from opera.data.names import source_name
from opera.experiments.analysis import check_run, short_name
from opera.experiments.grid.axes import GridAxes, axis_setting, check_lists, parse_method
from opera.methods import METHODS
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.folder import run_in

MAX_LABEL = 200
"""Bytes of a label: file systems take names of 255, and a temporary name is longer."""


@dataclass(frozen=True)
class GridPart:
    """Some cells of a grid: a data set with its own axes and settings.

    Attributes:
        data: the data set, as the user named it.
        name: its folder in the grid.
        axes: methods, seeds and steps on it.
        shared: settings of these cells. A method's own setting applies to the methods that have it.
    """

    data: str
    name: str
    axes: GridAxes
    shared: Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Attributes:
        data: the data set, as the user named it.
        label: the method with its own settings: ``sp`` or ``sp:k=0.5``.
        steps: optimizer steps; ``None`` for as many as the settings and the data say.
        seed: the seed.
        folder: its run folder.
        values: every setting given, by name, the method included.
    """

    data: str
    label: str
    steps: int | None
    seed: int
    folder: Path
    values: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether its run exists and is finished.

        Raises:
            OtherFormatError: if another version of OPERA wrote it.
            RunFolderError: if it is damaged.
        """
        try:
            run = run_in(self.folder)
            if run is None or not run.finished:
                return False
            check_run(run, DEFAULT_MEASURES)
        except OtherFormatError:
            message = f"{self.folder}: is a run by another version of OPERA; give another --out"
            raise OtherFormatError(message) from None
        except RunFolderError as error:
            raise RunFolderError(
                f"{error}; remove {self.folder}, and the cell is trained again"
            ) from None
        return True

    @property
    def log(self) -> Path:
        """The file with everything the cell prints."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def data_name(self) -> str:
        """The data set's name, unique within the grid."""
        return self.folder.parents[2].name

    @property
    def title(self) -> str:
        """A readable name."""
        steps = "" if self.steps is None else f"{self.steps} steps, "
        return f"{self.data_name}, {self.label}, {steps}seed {self.seed}"


def plan_grid(
    data: Sequence[str], axes: GridAxes, out: Path, shared: Mapping[str, Any]
) -> list[Cell]:
    """List the cells and check every recipe. Seeds are outermost, so a grid cut short has whole seeds.

    Args:
        data: data sets.
        axes: methods, seeds and steps.
        out: the grid's folder.
        shared: settings of all cells. A method's own setting applies to the methods that have it.

    Raises:
        SettingError: listing every mistake in any cell, or naming what is given twice.
    """
    _check_axes(data, axes, shared)
    names = _folder_names(data)
    return plan_parts([GridPart(source, names[source], axes, shared) for source in data], out)


def plan_parts(parts: Sequence[GridPart], out: Path) -> list[Cell]:
    """List the cells of several data sets, each with axes and settings of its own, and check every recipe.

    Seeds are outermost, then come the parts in their order.

    Raises:
        SettingError: listing every mistake in any cell of a part.
    """
    settings = [_settings_by_label(part.axes, with_full_names(part.shared)) for part in parts]
    cells = [
        Cell(
            data=part.data,
            label=label,
            steps=steps,
            seed=seed,
            folder=out / part.name / label.replace(":", ",") / _steps_folder(steps) / f"seed{seed}",
            values={
                **by_label[label],
                **({} if steps is None else {"max_steps": steps}),
                "seed": seed,
            },
        )
        for part, by_label in zip(parts, settings, strict=True)
        for seed, steps, label in product(part.axes.seeds, part.axes.steps, part.axes.methods)
    ]
    order = list(dict.fromkeys(seed for part in parts for seed in part.axes.seeds))
    return sorted(cells, key=lambda cell: order.index(cell.seed))


def _steps_folder(steps: int | None) -> str:
    return "autosteps" if steps is None else f"steps{steps}"


def _check_axes(data: Sequence[str], axes: GridAxes, shared: Mapping[str, Any]) -> None:
    options: dict[str, Sequence[Any]] = {
        "DATA": data,
        "--methods": axes.methods,
        "--seeds": axes.seeds,
        "--steps": axes.steps,
    }
    check_lists(options)
    by_place: dict[str, str] = {}
    for source in data:
        place = (
            os.path.realpath(source) if os.path.lexists(source) else source
        )  # "data" and "./data"
        if (other := by_place.setdefault(place, source)) != source:
            raise SettingError(
                f"DATA: {shortened(other)} and {shortened(source)} are the same place; give it once"
            )
    if name := axis_setting(shared):
        raise SettingError(
            f"{name}: differs between cells: give --methods, --steps and --seeds instead"
        )


def _check_label(label: str) -> None:
    """Check that a label can be the name of a folder, and of no other folder than its own."""
    if not label.isprintable() or re.search(r"[\s/\\]", label) or label.startswith("."):
        raise SettingError(
            "names a folder, so it must hold no space, slash or control character; use --set for those"
        )
    if len(label.encode()) > MAX_LABEL:
        raise SettingError(
            f"names a folder, so it must have at most {MAX_LABEL} bytes; use --set for some settings"
        )


def _settings_by_label(axes: GridAxes, shared: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Combine each method's own settings with the shared ones, and check the recipe of each."""
    parsed, mistakes = {}, []
    for label in axes.methods:
        try:
            _check_label(label)
            parsed[label] = parse_method(label)
        except SettingError as error:
            mistakes += [f"{shortened(label)}: {line}" for line in error.lines]
    methods = {method for method, _ in parsed.values()}
    settings: dict[str, dict[str, Any]] = {}
    label_by_recipe: dict[str, str] = {}
    for label, (method, own) in parsed.items():
        settings[label] = {
            **_shared_by_method(shared, method, methods),
            **with_full_names(own),
            "method": method,
        }
        try:
            recipe = repr(make_recipe({**settings[label], "max_steps": axes.steps[0]}).identity())
        except SettingError as error:
            mistakes += [f"{shortened(label)}: {line}" for line in error.lines]
            continue
        if name := axis_setting(own):
            mistakes.append(
                f"{label}: {name} differs between cells: give --methods, --steps and --seeds instead"
            )
        if (other := label_by_recipe.setdefault(recipe, label)) != label:
            mistakes.append(
                f"--methods: {shortened(other)} and {shortened(label)} are the same settings"
            )
    if mistakes:
        raise SettingError(*mistakes)
    return settings


def _shared_by_method(shared: Mapping[str, Any], method: str, methods: set[str]) -> dict[str, Any]:
    """The shared settings that apply to a method: all but those that only other methods of the grid have.

    A setting of training applies to every method, even if another method has one of the same name.
    """
    fields = {
        name: METHODS[name].settings_class.model_fields.keys() for name in methods & METHODS.keys()
    }
    others = (
        set().union(*fields.values()) - fields.get(method, set()) - TrainSettings.flat_fields.keys()
    )
    return {name: value for name, value in shared.items() if name not in others}


def _folder_names(data: Sequence[str]) -> dict[str, str]:
    """Name each data set's folder; repeated names get numbers."""
    names: dict[str, str] = {}
    for source in data:
        no_path = source.startswith("python:") or source_name(source) is not None
        path = source if no_path else os.path.normpath(Path(source).absolute())  # resolves ".."
        name = re.sub(r"[:/\\]", "-", short_name(path))
        taken, number, unique = set(names.values()), 2, name
        while unique in taken:
            unique, number = f"{name}-{number}", number + 1
        names[source] = unique
    return names
