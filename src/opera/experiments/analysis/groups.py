"""Finished runs in a folder, checked, and grouped: a group holds the seeds of one method.

It is on one data set, with one number of steps.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.errors import OtherFormatError, RunFolderError
from opera.core.terminal import shown
from opera.experiments.analysis.labels import differing_settings, method_label, short_name
from opera.methods import METHODS
from opera.runs.folder import (
    MEASURES_FILE,
    PAIRS_FILE,
    PER_QUERY_FILE,
    RUN_FILE,
    SAMPLING_FILE,
    TRACE_FILE,
    Run,
    run_in,
)
from opera.runs.reading import broken, check_columns

PAPERS, RECALL = "retrieved_ideal_nDCG@10", "R@20"
REASONS = UNFINISHED, OTHER_FORMAT, DAMAGED = (
    "unfinished",
    "written by another version of OPERA",
    "damaged",
)
"""Why runs are left out."""
WARM_UP = 5
"""Steps left out of timings: the first few load and compile."""
MAX_STEPS = 10**12
"""More than any run has; sums of them stay exact."""


@dataclass(frozen=True)
class MeanStd:
    """A measure over the seeds; the sample standard deviation is ``None`` with a single seed."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Group:
    """The runs of one method on one data set with one number of steps, by ascending seed.

    Attributes:
        data: the data set, as the user named it.
        method: label of the method, with the settings that set it apart: ``sp`` or ``sp:k=0.5``.
        steps: optimizer steps requested; where they were automatic, those of the first seed.
        runs: the runs, one per seed.
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
        """A measure ``before`` training, ``fine_tuned``, or handed over, float64 ``[seeds]``."""
        return np.array([run.measures[when][measure] for run in self.runs])

    def mean_std(self, measure: str, when: str = "after") -> MeanStd:
        """The mean and standard deviation of :meth:`values`."""
        values = self.values(measure, when)
        std = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return MeanStd(float(values.mean()), std)

    def mean(self, measure: str, when: str = "after") -> float:
        """The mean of :meth:`values`; seeds may draw different test splits."""
        return float(self.values(measure, when).mean())

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
        """Seconds of training: mean over the steps after warm-up, times the number of steps."""
        return float(np.median([_warm_seconds(run).mean() for run in self.runs])) * self.steps


def find_runs(folder: Path, measures: Sequence[str] = ()) -> tuple[list[Run], dict[str, list[str]]]:
    """Find the finished runs in a folder, at any depth. A run folder holds one run: itself.

    Returns them, and what is left out by the reasons :data:`REASONS`: folders, and of damaged runs
    why. A run without one of the measures counts as damaged. RunFolderError is raised if no run is
    finished, or if the folder is a run that cannot be read.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: no such folder")
    left_out: dict[str, list[str]] = {reason: [] for reason in REASONS}
    candidates, alone = [folder], os.path.lexists(folder / RUN_FILE) and run_in(folder) is not None
    if not alone:
        closed: list[OSError] = []  # folders that cannot be listed; linked ones are left out
        walk = os.walk(folder, onerror=closed.append)
        candidates = sorted(Path(at) for at, folders, files in walk if RUN_FILE in files + folders)
        left_out[DAMAGED] = [f"{e.filename}: cannot be read ({e.strerror})" for e in closed]
    finished: list[Run] = []
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
        except RunFolderError as error:
            if alone:
                raise
            other = isinstance(error, OtherFormatError)
            left_out[OTHER_FORMAT if other else DAMAGED].append(str(path if other else error))
    if not finished:
        counts = [f"{len(found)} {reason}" for reason, found in left_out.items() if found]
        others = f", only {' and '.join(counts)}" if counts else ""
        others += f" ({left_out[DAMAGED][0]})" if left_out[DAMAGED] else ""
        raise RunFolderError(f"{folder}: holds no finished run{others}")
    return finished, left_out


def check_run(run: Run, measures: Sequence[str] = ()) -> None:
    """Read every file of a finished run that an analysis reads, and check that they fit each other.

    The measures must be there at every moment, and after training for each query. RunFolderError
    names the first file that is missing, damaged or not of this run.
    """
    _check_settings(run)
    for moment in ("before", "after", "fine_tuned"):
        for name in measures:
            if name not in run.measures[moment]:
                raise broken(run.path / MEASURES_FILE, f"{moment}: {name} is missing")
    queries, pairs, trace = run.per_query(), run.pairs(), run.trace()
    measured = [
        name
        for name in queries.column_names
        if name.split(" ")[0] in ("before", "after", "fine_tuned", "similarity")
        and "documents" not in name
    ]
    needed = dict.fromkeys([*measured, *(f"after {name}" for name in measures)], "measure")
    with_similarity = {"doc_id": "text", "similarity": "measure"}
    in_pairs = with_similarity if "similarity" in pairs.column_names else {}
    for file, table, kinds in (
        (PER_QUERY_FILE, queries, needed),
        (PAIRS_FILE, pairs, in_pairs),
        (TRACE_FILE, trace, {"seconds": "measure"}),
    ):
        if table.num_rows == 0:
            raise broken(run.path / file, "has no rows")
        check_columns(run.path / file, table, kinds)
    drawn = pairs["times_drawn"].to_numpy()
    if (drawn < 0).any() or not drawn.any():
        raise broken(run.path / PAIRS_FILE, "column 'times_drawn' holds no counts")
    if (trace["seconds"].to_numpy() < 0).any():
        raise broken(run.path / TRACE_FILE, "column 'seconds' holds negative values")
    _check_sampling(run, pairs)


def _check_settings(run: Run) -> None:
    """Check the settings that results are grouped by."""
    record, place = run.record, run.path / RUN_FILE
    if record.training is None:
        raise broken(place, "training: is missing, though the run is finished")
    for values in (record.identity, record.settings):
        if not isinstance(values.get("method"), str):
            raise broken(place, "method: must be a name")
    for name, steps in (
        ("settings.max_steps", record.settings.get("max_steps")),
        ("training.steps", record.training.steps),
        ("identity.max_steps", record.identity.get("max_steps", "")),
    ):
        automatic = name.startswith("identity") and steps is None
        if not automatic and not (type(steps) is int and 1 <= steps <= MAX_STEPS):
            raise broken(place, f"{name}: must be a number of steps, got {shown(steps)}")
    guard = record.guard
    if guard is not None and guard.share not in {point.share for point in guard.curve}:
        raise broken(place, "guard.share: was not tried")


def _check_sampling(run: Run, pairs: pa.Table) -> None:
    """Check that the recorded probabilities are of these pairs."""
    record, place = run.sampling(), run.path / SAMPLING_FILE
    if record is None or len(record.steps) == 0:
        return
    ids = record.pair_ids
    if len(ids) == 0 or (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= pairs.num_rows:
        raise broken(place, "its pairs are not those of the run")
    queries = pairs["query_id"].to_numpy(zero_copy_only=False)[ids]
    if 1 + int((queries[1:] != queries[:-1]).sum()) != len(record.query_ids):
        raise broken(place, "its queries are not those of the run")


def find_groups(folder: Path) -> list[Group]:
    """Group the finished runs in a folder; RunFolderError if there is none."""
    return group_runs(find_runs(folder)[0])


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by data set, label and steps, sorted by data set, steps and label.

    RunFolderError is raised if a group has two runs with the same seed.
    """
    differing = differing_settings(runs)
    by_key: dict[tuple[str, str, int | None], dict[int, Run]] = {}
    for run in runs:
        record, label = run.record, method_label(run, differing)
        by_seed = by_key.setdefault((record.data.source, label, record.identity["max_steps"]), {})
        if (other := by_seed.setdefault(record.seed, run)) is not run:
            raise RunFolderError(
                f"{run.path} and {other.path} are the same run twice; compare one of them"
            )
    groups = []
    for (data, method, _), by_seed in by_key.items():
        members = tuple(by_seed[seed] for seed in sorted(by_seed))
        groups.append(Group(data, method, int(members[0].settings["max_steps"]), members))
    names = list(METHODS)

    def order(group: Group) -> tuple[str, int, int, str]:
        name = group.method.split(":")[0]
        place = names.index(name) if name in names else len(names)
        return group.data, group.steps, place, group.method

    return sorted(groups, key=order)


def ratio(seconds: float, reference: float) -> float | None:
    """Divide seconds; ``None`` where the reference took none, as by a clock that stood still."""
    return seconds / reference if reference > 0 else None


def _warm_seconds(run: Run) -> NDArray[np.float64]:
    seconds: NDArray[np.float64] = run.trace()["seconds"].to_numpy()
    return seconds[WARM_UP:] if len(seconds) >= 2 * WARM_UP else seconds
