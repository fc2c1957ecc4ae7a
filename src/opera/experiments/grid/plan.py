"""A grid of methods, seeds and steps on some data sets: which cells it has, and where each one's run lies.

    GRID/
      grid.json                     the model, the settings that all cells share, and which cells there are
      DATA/METHOD/steps500/seed0/   a run
      DATA/METHOD/steps500/seed0.log

Every cell is an ordinary run folder, but for the checkpoints, which go when it is finished.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opera.config.recipe import ALIASES, make_recipe, parse_value
from opera.config.yaml import parse_assignments
from opera.core.errors import RunFolderError, SettingError
from opera.core.files import replace_file
from opera.experiments.analysis import short_name
from opera.runs.folder import GRID_FILE, RUN_FILE, Run, check_writable, holds_run, planned_cells

LOCK_FILE = ".running"
VARIED = ("method", "max_steps", "seed")
"""What tells cells apart, and so cannot be shared by all."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Attributes:
        data: the data set, as the user called it.
        label: the method with its settings, as the user wrote it: ``sp`` or ``sp:k=0.5``.
        steps: optimizer steps.
        seed: the seed.
        place: its run folder.
        values: every setting given, its method among them, by name.
    """

    data: str
    label: str
    steps: int
    seed: int
    place: Path
    values: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether its run is there and done."""
        return holds_run(self.place) and Run.open(self.place).finished

    @property
    def log(self) -> Path:
        """What the cell printed."""
        return self.place.with_name(f"{self.place.name}.log")

    @property
    def data_name(self) -> str:
        """The data set's name, which no other of the grid has."""
        return self.place.parents[2].name

    @property
    def title(self) -> str:
        """A name for people."""
        return f"{self.data_name}, {self.label}, {self.steps} steps, seed {self.seed}"


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``dp`` or ``dp:levels=query:range=10:50``: the method's name and its settings."""
    name, *parts = re.split(r":(?=[A-Za-z_]\w*=)", text.strip())
    return name, parse_assignments(parts)


def plan_grid(
    data: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    steps: Sequence[int],
    out: Path,
    shared: Mapping[str, Any],
) -> list[Cell]:
    """List the cells, seeds outermost, so that a grid cut short compares whole seeds; checks every recipe.

    Args:
        data: data sets.
        methods: methods, each as :func:`parse_method` reads it.
        seeds: seeds.
        steps: numbers of optimizer steps.
        out: the grid's folder.
        shared: settings of all cells.

    Raises:
        SettingError: telling every mistake in any cell, or what is given twice.
    """
    for name, values in (("DATA", data), ("--methods", methods), ("--seeds", seeds), ("--steps", steps)):
        if not values:
            raise SettingError(f"{name}: give at least one")
        if twice := [value for at, value in enumerate(values) if value in values[:at]]:
            raise SettingError(f"{name}: {twice[0]} is given twice")
    if taken := [name for name in shared if ALIASES.get(name, name) in VARIED]:
        raise SettingError(f"{taken[0]}: differs between cells: give --methods, --steps and --seeds instead")
    names, mistakes = _folder_names(data), list[str]()
    same: dict[str, str] = {}
    for label in methods:
        try:
            method, own = parse_method(label)
            recipe = make_recipe({**shared, **own, "method": method}).flat()
        except SettingError as error:
            mistakes.append(f"{label}: {error}")
            continue
        if fixed := [name for name in own if ALIASES.get(name, name) in VARIED]:
            mistakes.append(f"{label}: {fixed[0]} differs between cells: give --methods, --steps and --seeds instead")
        if (twin := same.setdefault(repr(recipe), label)) != label:
            mistakes.append(f"--methods: {twin} and {label} are the same settings")
    if mistakes:
        raise SettingError("\n".join(mistakes))
    for name, values in (("seed", seeds), ("max_steps", steps)):
        for value in values:
            make_recipe({name: value})
    return [
        Cell(
            data=source,
            label=label,
            steps=length,
            seed=seed,
            place=out / names[source] / label.replace(":", ",") / f"steps{length}" / f"seed{seed}",
            values=_cell_values(shared, label, length, seed),
        )
        for seed in seeds
        for source in data
        for length in steps
        for label in methods
    ]


def check_grid_folder(out: Path, model: str, shared: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something else, or a grid of another model or other shared settings.

    Raises:
        RunFolderError: naming the difference, or a folder that cannot be written to.
    """
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"--out {out}: is a file; give a folder")
    check_writable(out)
    if not (out / GRID_FILE).is_file():
        if out.is_dir() and any(out.iterdir()):
            raise RunFolderError(f"--out {out}: is not empty and holds no grid; give an empty or a new folder")
        return
    if not any(out.rglob(RUN_FILE)):  # nothing ran yet, so nothing speaks for what it was begun with
        return
    try:
        known = dict(json.loads((out / GRID_FILE).read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise RunFolderError(f"{out / GRID_FILE}: is not as opera wrote it; give another folder") from None
    for name, value in _shared_facts(model, shared).items():
        if known.get(name) != value:
            raise RunFolderError(
                f"--out {out}: holds a grid with {name} {known.get(name)!r}, this call has {value!r}; "
                "give another folder"
            )


def write_grid_file(out: Path, model: str, shared: Mapping[str, Any], cells: Sequence[Cell] = ()) -> None:
    """Mark a folder as a grid, with what all its cells share, and with these cells beside those of earlier calls."""
    out.mkdir(parents=True, exist_ok=True)
    places = dict.fromkeys([*planned_cells(out), *(cell.place for cell in cells)])
    facts = {**_shared_facts(model, shared), "cells": [str(place.relative_to(out)) for place in places]}
    text = json.dumps(facts, indent=2) + "\n"
    replace_file(out / GRID_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Hold a grid's folder for one process at a time; a process that ends, however it does, lets go of it.

    Raises:
        RunFolderError: if another process runs the grid.
    """
    with (out / LOCK_FILE).open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise RunFolderError(
                f"--out {out}: process {lock.read().strip()} is running this grid; wait until it is done, or stop it"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _cell_values(shared: Mapping[str, Any], label: str, steps: int, seed: int) -> dict[str, Any]:
    method, own = parse_method(label)
    given = {ALIASES.get(name, name): value for values in (shared, own) for name, value in values.items()}
    return {**given, "method": method, "max_steps": steps, "seed": seed}


def _shared_facts(model: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    settings = {ALIASES.get(name, name): parse_value(name, value) for name, value in shared.items()}
    return dict(json.loads(json.dumps({"model": model, "settings": settings}, sort_keys=True, default=str)))


def _folder_names(data: Sequence[str]) -> dict[str, str]:
    """Name each data set's folder; two with one name get numbers."""
    names: dict[str, str] = {}
    for source in data:
        whole = source if source.startswith("python:") else os.path.normpath(Path(source).absolute())  # ".." has a name
        name = re.sub(r"[:/\\]", "-", short_name(whole))
        taken, number, unique = set(names.values()), 2, name
        while unique in taken:
            unique, number = f"{name}-{number}", number + 1
        names[source] = unique
    return names
