"""Runs grouped for comparison: one group holds the seeds of a method, on one data set, with one number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.config.training import TrainSettings
from opera.core.errors import RunFolderError
from opera.methods import METHODS, method_named
from opera.runs.folder import RUN_FILE, Run, holds_run

PRIMARY, PAPERS, RECALL = "nDCG@10", "retrieved_ideal_nDCG@10", "R@20"
WARM_UP = 5
APART = ("seed", "max_steps", "method")
"""Settings that groups tell apart, or put together, without naming them in their label."""


@dataclass(frozen=True)
class Group:
    """The runs of one method on one data set with one number of steps, over seeds.

    Attributes:
        data: the data set, as the user called it.
        method: the method, with the settings that set it apart: ``sp`` or ``sp:k=0.5``.
        steps: optimizer steps asked for.
        runs: by seed, ascending.
    """

    data: str
    method: str
    steps: int
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """The data set's short name: the last part of a path."""
        return short_name(self.data)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(int(run.record.seed) for run in self.runs)

    def values(self, measure: str) -> NDArray[np.float64]:
        """A measure after training, float64 ``[seeds]``."""
        return np.array([run.measures["after"][measure] for run in self.runs])

    def before(self, measure: str) -> float:
        """A measure of the pretrained model, mean over the seeds (they differ where seeds draw the test split)."""
        return float(np.mean([run.measures["before"][measure] for run in self.runs]))

    @cached_property
    def query_tables(self) -> tuple[pa.Table, ...]:
        """``per_query.parquet`` of each run."""
        return tuple(run.per_query() for run in self.runs)

    @cached_property
    def pair_tables(self) -> tuple[pa.Table, ...]:
        """``pairs.parquet`` of each run."""
        return tuple(run.pairs() for run in self.runs)

    @cached_property
    def seconds_a_step(self) -> float:
        """Seconds of a step: median over the steps but the first few, which load and compile, and over the seeds."""
        return float(np.median([np.median(_warm(run)) for run in self.runs]))

    @cached_property
    def training_seconds(self) -> float:
        """Seconds of training: the mean of the steps but the first, checkpoints among them, times their number."""
        return float(np.median([_warm(run).mean() for run in self.runs])) * self.steps


def _warm(run: Run) -> NDArray[np.float64]:
    seconds: NDArray[np.float64] = run.trace()["seconds"].to_numpy()
    return seconds[WARM_UP:] if len(seconds) >= 2 * WARM_UP else seconds


def find_runs(folder: Path) -> tuple[list[Run], list[Path]]:
    """Find the runs in a folder, at any depth; or the one that it is.

    Returns:
        The finished runs, and the folders of those that are not.

    Raises:
        RunFolderError: if none is finished.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: no such folder")
    places = [folder] if holds_run(folder) else sorted(path.parent for path in folder.rglob(RUN_FILE))
    runs = [Run.open(place) for place in places if holds_run(place)]
    finished = [run for run in runs if run.finished]
    if not finished:
        raise RunFolderError(f"{folder}: holds no finished run{f', only {len(runs)} unfinished' if runs else ''}")
    return finished, [run.path for run in runs if not run.finished]


def find_groups(folder: Path) -> list[Group]:
    """Group the finished runs in a folder by data set, method and steps; shortest first, else in order of labels.

    Raises:
        RunFolderError: if there is none, or if one seed stands twice in a group.
    """
    return grouped(find_runs(folder)[0])


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Group runs by data set, label and steps.

    Raises:
        RunFolderError: if two runs of a group have the same seed.
    """
    varying = _varying(runs)
    found: dict[tuple[str, str, int], dict[int, Run]] = {}
    for run in runs:
        key = (run.record.data.source, label_of(run, varying), int(run.settings["max_steps"]))
        members = found.setdefault(key, {})
        seed = int(run.record.seed)
        if seed in members:
            raise RunFolderError(f"{run.path} and {members[seed].path} are the same run twice; compare one of them")
        members[seed] = run
    order = sorted(found, key=lambda key: (key[0], key[2], _place(key[1]), key[1]))
    return [Group(*key, tuple(run for _, run in sorted(found[key].items()))) for key in order]


def label_of(run: Run, varying: frozenset[str] = frozenset()) -> str:
    """Name a run's method: with its own settings that are not their defaults, and others that differ between runs.

    Args:
        run: the run.
        varying: names of the settings, ``model`` among them, that differ between the runs it is compared with; those
            at their defaults are not told.
    """
    settings = _told(run)
    own = method_named(settings["method"]).settings_class.model_fields
    told = [name for name, field in own.items() if settings.get(name) != field.default and name in settings]
    told += [
        name for name in sorted(varying) if name not in own and name in settings and not _is_default(name, settings)
    ]
    return ":".join([settings["method"], *(f"{name}={_shown(settings[name])}" for name in told)])


def shared_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Settings of training that all runs have in common and that are not their defaults, by name."""
    told = [run.record.identity for run in runs]
    names = [name for name in TrainSettings.flat_fields if name not in APART and name in told[0]]
    alike = [name for name in names if len({repr(values.get(name)) for values in told}) == 1]
    return {name: told[0][name] for name in alike if not _is_default(name, told[0])}


def shown_settings(settings: Mapping[str, Any]) -> str:
    """Settings as on a command line: ``noise=random, noise_share=0.3``."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in settings.items())


def display_names(sources: Sequence[str]) -> dict[str, str]:
    """A name for each data set: the last part of its path, or as many parts as tell them apart."""
    names = {source: short_name(source) for source in sources}
    for parts in range(2, 20):
        shared = {name for name in names.values() if list(names.values()).count(name) > 1}
        if not shared:
            break
        for source in names:
            if names[source] in shared:
                names[source] = "/".join(Path(source).parts[-parts:]) or source
    return names


def short_name(source: str) -> str:
    """The last part of a data set's path."""
    return Path(source).name.removesuffix(".jsonl") or source


def _told(run: Run) -> dict[str, Any]:
    """A run's settings as its user gave them, with the model among them."""
    return {**run.record.identity, "model": short_name(run.record.model.source)}


def _varying(runs: Sequence[Run]) -> frozenset[str]:
    names = [name for name in ("model", *TrainSettings.flat_fields) if name not in APART]
    told = [_told(run) for run in runs]
    return frozenset(name for name in names if len({repr(values.get(name)) for values in told}) > 1)


def _place(label: str) -> int:
    """Order labels as the methods stand in the registry."""
    return list(METHODS).index(label.split(":")[0])


def _is_default(name: str, settings: dict[str, Any]) -> bool:
    field = TrainSettings.flat_fields.get(name)
    return field is not None and settings[name] == field.default


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ":".join(str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
