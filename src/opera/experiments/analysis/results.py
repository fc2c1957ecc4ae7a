"""The results of a folder of runs: what the tables, the JSON and the report read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opera.core.errors import SettingError
from opera.experiments.analysis.convergence import Convergence, compute_convergence
from opera.experiments.analysis.difficulty import measure_by_difficulty
from opera.experiments.analysis.groups import (
    PAPERS,
    PRIMARY,
    RECALL,
    Group,
    MeanStd,
    find_runs,
    group_runs,
    ratio,
)
from opera.experiments.analysis.guard import GuardResult, guard_results
from opera.experiments.analysis.labels import display_names, shared_settings
from opera.experiments.analysis.ranks import average_ranks
from opera.experiments.analysis.significance import PairedTest, paired_tests, paired_tests_within
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.folder import Run
from opera.runs.grid_record import planned_cells

TESTED = (PRIMARY, PAPERS, RECALL)
UNTRAINED = "untrained"
DEFAULT_BASELINE = "ft"


@dataclass(frozen=True)
class MethodResult:
    """One method's row in a table.

    Attributes:
        method: its label.
        seeds: the seeds.
        measures: each measure of the models handed over.
        tests: by measure, against the baseline; empty for the baseline itself and where no test is possible.
        gain: nDCG@10 of the models handed over against the untrained model, Holm-corrected over the methods; ``None``
            with fewer than two queries.
        guard: what the guard chose, and the fine-tuned models; ``None`` for runs without it.
        noise: ``pairs``, the share of the training pairs that were injected as noise, and ``draws``, their share of the
            draws, means over the seeds; empty without noise.
        difficulty: by measure, the mean in each third of the test queries; empty where runs recorded no similarity.
        seconds_per_step: seconds per training step.
        step_ratio: ``seconds_per_step`` divided by the baseline's; ``None`` without a baseline.
        training_seconds: seconds of training.
    """

    method: str
    seeds: tuple[int, ...]
    measures: dict[str, MeanStd]
    tests: dict[str, PairedTest]
    gain: PairedTest | None
    guard: GuardResult | None
    noise: dict[str, float]
    difficulty: dict[str, dict[str, float]]
    seconds_per_step: float
    step_ratio: float | None
    training_seconds: float


@dataclass(frozen=True)
class ResultsTable:
    """All methods on one data set with one number of steps.

    Attributes:
        data: the data set, as the user named it.
        name: its short name.
        steps: optimizer steps.
        queries: number of test queries.
        untrained: the pretrained model's measures.
        untrained_difficulty: the pretrained model's values of :attr:`MethodResult.difficulty`.
        rows: one result per method.
    """

    data: str
    name: str
    steps: int
    queries: int
    untrained: dict[str, float]
    untrained_difficulty: dict[str, dict[str, float]]
    rows: tuple[MethodResult, ...]

    def best_row(self, measure: str) -> MethodResult:
        """The method with the highest mean."""
        return max(self.rows, key=lambda row: row.measures[measure].mean)

    def best(self, measure: str) -> str:
        """The label with the highest mean, or ``untrained``."""
        highest = self.best_row(measure)
        return (
            highest.method
            if highest.measures[measure].mean > self.untrained[measure]
            else UNTRAINED
        )


@dataclass(frozen=True)
class Comparison:
    """The results of a folder of runs.

    Attributes:
        folder: the folder.
        models: the pretrained models.
        shared: settings of training that all runs share and that are not at their default.
        baseline: label of the method that the others are tested against; ``None`` with a single method.
        groups: the runs.
        tables: one per data set and number of steps.
        convergence: when each method first matches the baseline's best.
        ranks: average ranks by measure, each data set with its largest number of steps; empty for one data set.
        left_out: the runs that are not compared, by the reason, as :class:`FolderRuns` has them.
        planned: number of cells in the grid's plan; 0 for a folder that is no grid.
        missing: how many of them are not finished.
    """

    folder: Path
    models: tuple[str, ...]
    shared: dict[str, Any]
    baseline: str | None
    groups: tuple[Group, ...]
    tables: tuple[ResultsTable, ...]
    convergence: tuple[Convergence, ...]
    ranks: dict[str, dict[str, float]]
    left_out: dict[str, list[str]]
    planned: int
    missing: int

    def as_dict(self) -> dict[str, Any]:
        """Everything but the runs themselves, for JSON."""
        tables = [asdict(table) for table in self.tables]
        for guard in (
            row["guard"] for table in tables for row in table["rows"] if row["guard"] is not None
        ):
            guard["typical"] = guard["typical"].model_dump()
        return {
            "folder": str(self.folder),
            "models": list(self.models),
            "shared_settings": self.shared,
            "baseline": self.baseline,
            "tables": tables,
            "convergence": [asdict(convergence) for convergence in self.convergence],
            "average_ranks": self.ranks,
            "left_out": self.left_out,
            "planned_cells": self.planned,
            "missing_cells": self.missing,
        }

    def final(self, data: str) -> ResultsTable:
        """The table of a data set with its largest number of steps."""
        return max(
            (table for table in self.tables if table.data == data), key=lambda table: table.steps
        )

    def final_tables(self) -> list[ResultsTable]:
        """Each data set's table with the largest number of steps."""
        return [self.final(data) for data in dict.fromkeys(table.data for table in self.tables)]

    def first_run(self, table: ResultsTable, method: str) -> Run:
        """The run of a method in a table with its first seed."""
        key = (table.data, method, table.steps)
        return next(
            group for group in self.groups if (group.data, group.method, group.steps) == key
        ).runs[0]


def analyse_runs(folder: Path, baseline: str | None = None) -> Comparison:
    """Analyse the finished runs in a folder. Reads run folders only.

    Args:
        folder: a grid, a run, or any folder of runs.
        baseline: label of the method to test against; ``None`` takes ``ft`` if there is one, else the first.

    Raises:
        RunFolderError: if there is no finished run.
        SettingError: if no run has the baseline's label.
    """
    folder_runs = find_runs(folder, DEFAULT_MEASURES)
    runs = folder_runs.finished
    planned = planned_cells(folder)
    groups = group_runs(runs)
    baseline = _pick_baseline(groups, baseline)
    largest = {group.data: max(g.steps for g in groups if g.data == group.data) for group in groups}
    final = [group for group in groups if group.steps == largest[group.data]]
    ranks = (
        {measure: average_ranks(final, measure) for measure in TESTED} if len(largest) > 1 else {}
    )
    return Comparison(
        folder=folder,
        models=tuple(dict.fromkeys(run.record.model.source for run in runs)),
        shared=shared_settings(runs),
        baseline=baseline,
        groups=tuple(groups),
        tables=_tables(groups, baseline),
        convergence=tuple(compute_convergence(groups, baseline)) if baseline else (),
        ranks={measure: by_label for measure, by_label in ranks.items() if by_label},
        left_out=folder_runs.left_out,
        planned=len(planned),
        missing=len({path.resolve() for path in planned} - {run.path.resolve() for run in runs}),
    )


def _pick_baseline(groups: Sequence[Group], requested: str | None) -> str | None:
    labels = list(dict.fromkeys(group.method for group in groups))
    if requested is not None and requested not in labels:
        raise SettingError(
            f"--baseline {requested}: no run has this label; there are {', '.join(labels)}"
        )
    if len(labels) == 1:
        return None
    return requested or (DEFAULT_BASELINE if DEFAULT_BASELINE in labels else labels[0])


def _tables(groups: Sequence[Group], baseline: str | None) -> tuple[ResultsTable, ...]:
    names = display_names(list(dict.fromkeys(group.data for group in groups)))
    by_key: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        by_key.setdefault((group.data, group.steps), []).append(group)
    return tuple(_table(members, baseline, names[data]) for (data, _), members in by_key.items())


def _table(groups: Sequence[Group], baseline: str | None, name: str) -> ResultsTable:
    reference = next((group for group in groups if group.method == baseline), None)
    others = [group for group in groups if group is not reference]
    tests = {
        measure: paired_tests(others, reference, measure) if reference else {} for measure in TESTED
    }
    gains = paired_tests_within(groups, PRIMARY)
    guards = guard_results(groups)
    first = groups[0]
    return ResultsTable(
        data=first.data,
        name=name,
        steps=first.steps,
        queries=first.query_tables[0].num_rows,
        untrained={measure: first.before(measure) for measure in DEFAULT_MEASURES},
        untrained_difficulty=_difficulty(first, "before"),
        rows=tuple(
            _method_result(
                group, reference, tests, gains.get(group.method), guards.get(group.method)
            )
            for group in groups
        ),
    )


def _method_result(
    group: Group,
    reference: Group | None,
    tests: dict[str, dict[str, PairedTest]],
    gain: PairedTest | None,
    guard: GuardResult | None,
) -> MethodResult:
    return MethodResult(
        method=group.method,
        seeds=group.seeds,
        measures={measure: group.mean_std(measure) for measure in DEFAULT_MEASURES},
        tests={
            measure: by_label[group.method]
            for measure, by_label in tests.items()
            if group.method in by_label
        },
        gain=gain,
        guard=guard,
        noise=_noise(group),
        difficulty=_difficulty(group, "after"),
        seconds_per_step=group.seconds_per_step,
        step_ratio=ratio(group.seconds_per_step, reference.seconds_per_step) if reference else None,
        training_seconds=group.training_seconds,
    )


def _noise(group: Group) -> dict[str, float]:
    pairs, draws = [], []
    for table in group.pair_tables:
        drawn, injected = (
            table["times_drawn"].to_numpy(),
            table["injected"].to_numpy(zero_copy_only=False),
        )
        pairs.append(injected.mean())
        draws.append(drawn[injected].sum() / drawn.sum())
    return {"pairs": float(np.mean(pairs)), "draws": float(np.mean(draws))} if any(pairs) else {}


def _difficulty(group: Group, when: str) -> dict[str, dict[str, float]]:
    by_measure = {
        measure: measure_by_difficulty(group, measure, when) for measure in (PRIMARY, RECALL)
    }
    return {measure: means for measure, means in by_measure.items() if means is not None}
