"""Runs grouped by method: a group holds the seeds of one method, on one data set, with one number of steps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.errors import OtherFormatError, RunFolderError
from opera.experiments.analysis.checks import check_run
from opera.experiments.analysis.labels import differing_settings, method_label, short_name
from opera.methods import METHODS
from opera.runs.folder import RUN_FILE, Run, run_in

PRIMARY, PAPERS, RECALL = "nDCG@10", "retrieved_ideal_nDCG@10", "R@20"
REASONS = UNFINISHED, OTHER_FORMAT, DAMAGED = (
    "unfinished",
    "written by another version of OPERA",
    "damaged",
)
"""Why runs are left out."""
WARM_UP = 5
"""Steps left out of timings: the first few load and compile."""


@dataclass(frozen=True)
class MeanStd:
    """A measure over the seeds.

    Attributes:
        mean: the mean.
        std: the sample standard deviation; ``None`` with a single seed.
    """

    mean: float
    std: float | None


@dataclass(frozen=True)
class Group:
    """The runs of one method on one data set with one number of steps, one per seed.

    Attributes:
        data: the data set, as the user named it.
        method: label of the method, with the settings that set it apart: ``sp`` or ``sp:k=0.5``.
        steps: optimizer steps requested; where they were automatic, those of the first seed.
        runs: the runs, by ascending seed.
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
        return tuple(run.record.seed for run in self.runs)

    def values(self, measure: str, when: str = "after") -> NDArray[np.float64]:
        """A measure of the models handed over, or ``fine_tuned``, float64 ``[seeds]``."""
        return np.array([run.measures[when][measure] for run in self.runs])

    def mean_std(self, measure: str, when: str = "after") -> MeanStd:
        """The mean and standard deviation of :meth:`values`."""
        values = self.values(measure, when)
        return MeanStd(
            float(values.mean()), float(np.std(values, ddof=1)) if len(values) > 1 else None
        )

    def mean(self, measure: str) -> float:
        """Mean over the seeds of a measure after training."""
        return float(self.values(measure).mean())

    def before(self, measure: str) -> float:
        """A measure of the pretrained model, mean over the seeds (seeds may draw different test splits)."""
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
    def seconds_per_step(self) -> float:
        """Seconds per step: median over the steps after warm-up, then over the seeds."""
        return float(np.median([np.median(_warm_seconds(run)) for run in self.runs]))

    @cached_property
    def training_seconds(self) -> float:
        """Seconds of training: mean over the steps after warm-up, checkpoints included, times the number of steps."""
        return float(np.median([_warm_seconds(run).mean() for run in self.runs])) * self.steps


@dataclass(frozen=True)
class FolderRuns:
    """The runs in a folder.

    Attributes:
        finished: the finished runs.
        left_out: the others, by the reasons :data:`REASONS`: folders, and of damaged ones why.
    """

    finished: tuple[Run, ...]
    left_out: dict[str, list[str]]


def find_runs(folder: Path, measures: Sequence[str] = ()) -> FolderRuns:
    """Find the runs in a folder, at any depth. A run folder holds one run: itself.

    Args:
        folder: the folder.
        measures: measures that a run must have; one without them counts as damaged.

    Raises:
        OtherFormatError: if the folder is a run that another version of OPERA wrote.
        RunFolderError: if no run is finished, or the folder is a run that is damaged.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: no such folder")
    closed: list[OSError] = []
    if os.path.lexists(folder / RUN_FILE) and (run := run_in(folder)) is not None:
        if run.finished:
            check_run(run, measures)
            return FolderRuns((run,), {})
        candidates = [folder]
    else:
        candidates = _candidates(folder, closed)
    finished: list[Run] = []
    left_out: dict[str, list[str]] = {reason: [] for reason in REASONS}
    left_out[DAMAGED] = [f"{error.filename}: cannot be read ({error.strerror})" for error in closed]
    for path in candidates:
        try:
            run = run_in(path)
            if run is None:
                continue
            if run.finished:
                check_run(run, measures)
                finished.append(run)
            else:
                left_out[UNFINISHED].append(str(path))
        except OtherFormatError:
            left_out[OTHER_FORMAT].append(str(path))
        except RunFolderError as error:
            left_out[DAMAGED].append(str(error))
    if not finished:
        others = " and ".join(
            f"{len(found)} {reason}" for reason, found in left_out.items() if found
        )
        others += f" ({left_out[DAMAGED][0]})" if left_out[DAMAGED] else ""
        raise RunFolderError(
            f"{folder}: holds no finished run{f', only {others}' if others else ''}"
        )
    return FolderRuns(tuple(finished), left_out)


def _candidates(folder: Path, closed: list[OSError]) -> list[Path]:
    """Return the folders with a ``run.json``, linked ones left out; ``closed`` gets the errors of those not listed."""
    walk = os.walk(folder, onerror=closed.append)
    return sorted(Path(home) for home, folders, files in walk if RUN_FILE in (*files, *folders))


def find_groups(folder: Path) -> list[Group]:
    """Group the finished runs in a folder.

    Raises:
        RunFolderError: if there is none, or if a group has two runs with the same seed.
    """
    return group_runs(find_runs(folder).finished)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by data set, label and steps, sorted by data set, steps and label.

    Raises:
        RunFolderError: if a group has two runs with the same seed.
    """
    differing = differing_settings(runs)
    by_key: dict[tuple[str, str, int | None], dict[int, Run]] = {}
    for run in runs:
        key = (
            run.record.data.source,
            method_label(run, differing),
            run.record.identity["max_steps"],
        )
        by_seed = by_key.setdefault(key, {})
        seed = run.record.seed
        if seed in by_seed:
            raise RunFolderError(
                f"{run.path} and {by_seed[seed].path} are the same run twice; compare one of them"
            )
        by_seed[seed] = run
    groups = [_group(data, method, by_seed) for (data, method, _), by_seed in by_key.items()]
    return sorted(
        groups,
        key=lambda group: (group.data, group.steps, _registry_order(group.method), group.method),
    )


def ratio(seconds: float, reference: float) -> float | None:
    """Divide seconds; ``None`` where the reference took none, as a clock that stood still has it."""
    return seconds / reference if reference > 0 else None


def _group(data: str, method: str, by_seed: Mapping[int, Run]) -> Group:
    runs = tuple(by_seed[seed] for seed in sorted(by_seed))
    return Group(data, method, int(runs[0].settings["max_steps"]), runs)


def _warm_seconds(run: Run) -> NDArray[np.float64]:
    seconds: NDArray[np.float64] = run.trace()["seconds"].to_numpy()
    return seconds[WARM_UP:] if len(seconds) >= 2 * WARM_UP else seconds


def _registry_order(label: str) -> int:
    """Where the label's method comes in the registry; one that is not registered here comes last."""
    names, name = list(METHODS), label.split(":")[0]
    return names.index(name) if name in names else len(names)
