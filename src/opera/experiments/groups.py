"""Find the finished runs in a folder, check them, and group them.

The runs of a group differ only in their seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.config.training import EncodingSettings, TrainSettings
from opera.core.arguments import RUN_FILE
from opera.core.errors import RunFolderError
from opera.core.figures import DEFAULT_MEASURES, in_points
from opera.data.names import DataName, TableSource, source_name, source_title
from opera.methods import METHODS
from opera.run_folder.folder import Run, check_no_reranker, run_in


@dataclass(frozen=True)
class MeanStd:
    """A measure over the seeds; the sample standard deviation is ``None`` for a single seed."""

    mean: float
    std: float | None

    def in_points(self) -> str:
        """The mean and the deviation for a table: ``46.0 ± 0.3``."""
        return in_points(self.mean) + ("" if self.std is None else f" ± {in_points(self.std)}")


@dataclass(frozen=True)
class Group:
    """The runs of one method on one data set with one base model and one number of steps, by
    ascending seed.

    Attributes:
        data: the data set, as the user named it.
        model: the short name of the base model, unique among the compared runs.
        method: label of the method with its distinctive settings: ``sp`` or ``sp:k=0.5``.
        steps: optimizer steps; if they were automatic, those of the first seed.
        requested_steps: the steps that the user set; ``None`` if they were automatic.
        runs: the runs, one per seed.
    """

    data: DataName
    model: str
    method: str
    steps: int
    requested_steps: int | None
    runs: tuple[Run, ...]

    @property
    def block(self) -> tuple[DataName, str]:
        """The data set and the base model: methods are compared within a block."""
        return self.data, self.model

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(run.record.seed for run in self.runs)

    def has(self, when: str) -> bool:
        """Whether all runs have measures of ``bm25``, ``hybrid`` or ``fine_tuned``."""
        return all(when in run.measures for run in self.runs)

    def means(self, when: str) -> dict[str, float]:
        """The means of the main measures over the seeds."""
        return {measure: self.mean_std(measure, when).mean for measure in DEFAULT_MEASURES}

    def mean_std(self, measure: str, when: str = "final") -> MeanStd:
        """The mean and standard deviation of a measure of the ``base``, ``fine_tuned`` or ``final``
        models, of ``bm25`` or of ``hybrid``; the seeds may have different test splits.
        """
        values = np.array([run.measures[when][measure] for run in self.runs])
        std = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return MeanStd(float(values.mean()), std)

    @cached_property
    def query_tables(self) -> tuple[pa.Table, ...]:
        """The runs' ``per_query.parquet``."""
        return tuple(run.per_query() for run in self.runs)

    @cached_property
    def seconds_per_step(self) -> float:
        """Seconds per step: the median over the steps after warm-up, then over the seeds."""
        return float(np.median([np.median(run.step_seconds()) for run in self.runs]))

    @cached_property
    def training_seconds(self) -> float:
        """Training time: the mean over the steps after warm-up, times the number of steps."""
        return float(np.median([run.step_seconds().mean() for run in self.runs])) * self.steps


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """Find the finished runs in a folder, at any depth; the folder may itself be a run.

    Returns the runs, and the other run folders with the reasons why they are left out.
    RunFolderError is raised if no run is finished, or if the folder is a run that cannot be read.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: no such folder")
    is_run = run_in(folder) is not None
    inside = (path.parent for path in folder.rglob(RUN_FILE))
    # a hidden folder holds a run that is to replace another
    paths = [folder] if is_run else sorted(path for path in inside if path.name[0] != ".")
    finished: list[Run] = []
    left_out: list[str] = []
    for path in paths:
        try:
            run = run_in(path)
            if run is not None and run.finished:
                finished.append(run)
            elif run is not None:
                left_out.append(f"{path}: is not finished")
        except RunFolderError as error:
            if is_run:
                raise
            left_out.append(str(error))
    if not finished:
        check_no_reranker(folder)
        raise RunFolderError(f"{folder}: holds no finished run", *left_out)
    return finished, left_out


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by data set, base model, label and steps, and sort them in this order, the steps
    before the label.

    RunFolderError is raised if a group has two runs with the same seed.
    """
    settings, names = settings_of(runs), list(METHODS)
    differing = differing_settings(runs, settings)
    by_key: dict[tuple[DataName, str, str, int | None], list[Run]] = {}
    for run, values in sorted(
        zip(runs, settings, strict=True), key=lambda pair: pair[0].record.seed
    ):
        label, steps = method_label(values, differing), values["max_steps"]
        key = run.record.data.source, values["model"], label, steps
        members = by_key.setdefault(key, [])
        if members and members[-1].record.seed == run.record.seed:
            raise RunFolderError(
                f"{run.path} and {members[-1].path} are the same run twice; remove one of them"
            )
        members.append(run)
    groups = [
        Group(data, model, label, int(members[0].settings["max_steps"]), requested, tuple(members))
        for (data, model, label, requested), members in by_key.items()
    ]

    def order(group: Group) -> tuple[str, str, int, int, str]:
        name, block = group.method.split(":")[0], (str(group.data), group.model)
        return *block, group.steps, [*names, name].index(name), group.method

    return sorted(groups, key=order)


FINGERPRINTS = {
    "data_fingerprint": ("data", ()),
    "model_fingerprint": ("model", ("data", *EncodingSettings.model_fields)),
    "teacher_fingerprint": ("teacher_scores", ("data",)),
    "decided_pairs": (
        "decisions",
        ("data", "seed", "relevant_grade", "expected_documents", "guard", "trainer"),
    ),
}
"""The settings that fingerprints in a run's identity stand for, and the other settings that decide
the fingerprints."""
GROUPING = {"seed", "max_steps", "method", "model"}
"""Settings that define groups; labels do not show them."""


def method_label(settings: Mapping[str, Any], differing: frozenset[str] = frozenset()) -> str:
    """Label a run by its method and its distinctive settings: ``sp:k=0.5``.

    A label shows the settings of the method, and the other settings that differ between the runs.
    It omits settings with their default values. If the method is not registered, its settings
    appear only if they differ.
    """
    method = METHODS.get(settings["method"])
    method_fields = method.settings_class.model_fields if method else {}
    fields = {**TrainSettings.model_fields, **method_fields}
    label = settings["method"]
    for name in [*method_fields, *sorted(differing - method_fields.keys())]:
        if name in settings and not (name in fields and settings[name] == fields[name].default):
            label += f":{name}={_format_value(settings[name])}"
    return str(label)


def settings_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return each run's settings as its user gave them, and the names of its model and data.

    If files of the same name had different contents, their names get numbers.
    """
    settings = [
        {
            **run.record.identity,
            "model": short_name(run.record.model.source),
            "data": short_name(run.record.data.source),
        }
        for run in runs
    ]
    for fingerprint, (name, deciding) in FINGERPRINTS.items():
        names: dict[str, Any] = {}
        numbers: dict[str, dict[str, int]] = {}
        for values in settings:
            digest = repr(values.pop(fingerprint, values.get(name)))
            values[name] = names.setdefault(digest, values.get(name))
            key = repr([values.get(setting) for setting in (name, *deciding)])
            same_name = numbers.setdefault(key, {})
            if (number := same_name.setdefault(digest, len(same_name) + 1)) > 1:
                values[name] = f"{_format_value(values[name])}-{number}"
    return settings


def differing_settings(
    runs: Sequence[Run], settings: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """Find the settings that differ between runs on the same data set with the same base model.

    Settings that differ only between data sets or base models do not distinguish runs, so labels
    omit them.
    """
    values_by_setting: dict[tuple[DataName, str, str], set[str]] = {}
    for run, values in zip(runs, settings, strict=True):
        for name, value in values.items():
            key = run.record.data.source, values["model"], name
            values_by_setting.setdefault(key, set()).add(repr(value))
    return (
        frozenset(name for (*_, name), values in values_by_setting.items() if len(values) > 1)
        - GROUPING
    )


def shared_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the training settings that all runs share and that differ from the defaults."""
    first, *others = [run.record.identity for run in runs]
    return {
        name: first[name]
        for name, field in TrainSettings.model_fields.items()
        if name not in GROUPING
        and first.get(name, field.default) != field.default
        and all(repr(other.get(name)) == repr(first[name]) for other in others)
    }


def format_settings(settings: Mapping[str, Any]) -> str:
    """Format settings as on a command line: ``k=0.5, levels=query``."""
    return ", ".join(f"{name}={_format_value(value)}" for name, value in settings.items())


def display_names(sources: Sequence[DataName]) -> dict[DataName, str]:
    """Name data sets by the last part of their paths, or as the user did if it is ambiguous."""
    names = [short_name(source) for source in sources]
    return {
        source: source_title(source) if names.count(name) > 1 else name
        for source, name in zip(sources, names, strict=True)
    }


def short_name(source: DataName) -> str:
    """Return the last part of a data set's path, or the name of a published data set; of several
    data sets, the names joined by " + ".
    """
    sources = [source] if isinstance(source, TableSource) else source.split(" + ")
    return " + ".join(
        source_name(name) or Path(str(name)).name.removesuffix(".jsonl") or str(name)
        for name in sources
    )


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ":".join(str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
