"""All that a folder of runs says when its methods are compared: what the tables, the JSON and the report read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opera.core.errors import SettingError
from opera.experiments.analysis.facts import (
    Coverage,
    Race,
    average_ranks,
    by_difficulty,
    coverage,
    races,
    winners,
)
from opera.experiments.analysis.groups import (
    PAPERS,
    PRIMARY,
    RECALL,
    Group,
    display_names,
    find_runs,
    grouped,
    shared_settings,
)
from opera.experiments.analysis.significance import PairedTest, paired_tests, tests_from_before
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.folder import planned_cells

TESTED = (PRIMARY, PAPERS, RECALL)
UNTRAINED = "untrained"


@dataclass(frozen=True)
class Spread:
    """A measure over the seeds.

    Attributes:
        mean: the mean.
        deviation: the sample standard deviation; ``None`` with one seed.
    """

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Row:
    """One method in a table.

    Attributes:
        method: its label.
        seeds: the seeds.
        measures: by name, after training.
        tests: by measure, against the baseline; empty for the baseline itself and where there is none.
        gain: nDCG@10 against the untrained model, corrected over the methods; ``None`` with fewer than two queries.
        coverage: what it drew of the training data.
        difficulty: by measure: the mean in each third of the test queries; empty where runs recorded no similarity.
        seconds_a_step: seconds of a training step.
        step_ratio: those over the baseline's; ``None`` without a baseline.
        training_seconds: seconds of training.
    """

    method: str
    seeds: tuple[int, ...]
    measures: dict[str, Spread]
    tests: dict[str, PairedTest]
    gain: PairedTest | None
    coverage: Coverage
    difficulty: dict[str, dict[str, float]]
    seconds_a_step: float
    step_ratio: float | None
    training_seconds: float


@dataclass(frozen=True)
class Table:
    """All methods on one data set with one number of steps.

    Attributes:
        data: the data set, as the user called it.
        name: its short name.
        steps: optimizer steps.
        queries: how many test queries there are.
        untrained: the pretrained model's measures.
        untrained_difficulty: the pretrained model's, as a row's ``difficulty``.
        rows: a method each.
        winners: label of the highest mean by trec_eval's nDCG@10 and by the paper's.
    """

    data: str
    name: str
    steps: int
    queries: int
    untrained: dict[str, float]
    untrained_difficulty: dict[str, dict[str, float]]
    rows: tuple[Row, ...]
    winners: dict[str, str]

    @property
    def disagree(self) -> bool:
        """Whether the two nDCGs name different winners."""
        return len(set(self.winners.values())) > 1

    def best(self, measure: str) -> str:
        """The label with the highest mean, or ``untrained``."""
        highest = max(self.rows, key=lambda row: row.measures[measure].mean)
        return highest.method if highest.measures[measure].mean > self.untrained[measure] else UNTRAINED


@dataclass(frozen=True)
class Comparison:
    """What a folder of runs says.

    Attributes:
        folder: the folder.
        models: the pretrained models.
        shared: settings of training that all runs have in common and that are not their defaults.
        baseline: label of the method that the others are tested against; ``None`` where there is one method alone.
        groups: the runs.
        tables: one a data set and number of steps.
        races: when methods reach the baseline's best.
        ranks: average ranks by measure, each data set with its largest number of steps; empty for one data set.
        unfinished: folders of runs that were left out.
        planned: how many cells the grid is to have; 0 for a folder that is no grid.
        missing: how many of them are not finished.
    """

    folder: Path
    models: tuple[str, ...]
    shared: dict[str, Any]
    baseline: str | None
    groups: tuple[Group, ...]
    tables: tuple[Table, ...]
    races: tuple[Race, ...]
    ranks: dict[str, dict[str, float]]
    unfinished: tuple[Path, ...]
    planned: int
    missing: int

    def as_dict(self) -> dict[str, Any]:
        """Everything but the runs themselves, for JSON."""
        tables = [{**asdict(table), "disagree": table.disagree} for table in self.tables]
        return {
            "folder": str(self.folder),
            "models": list(self.models),
            "shared_settings": self.shared,
            "baseline": self.baseline,
            "tables": tables,
            "races": [asdict(race) for race in self.races],
            "average_ranks": self.ranks,
            "unfinished": [str(path) for path in self.unfinished],
            "planned_cells": self.planned,
            "missing_cells": self.missing,
        }

    def final(self, data: str) -> Table:
        """The table of a data set with its largest number of steps."""
        return max((table for table in self.tables if table.data == data), key=lambda table: table.steps)


def compare_runs(folder: Path, baseline: str | None = None) -> Comparison:
    """Compare the finished runs in a folder; reads run folders alone.

    Args:
        folder: a grid, a run, or any folder of runs.
        baseline: label of the method to test against; ``None`` takes ``ft`` where it is there, else the first.

    Raises:
        RunFolderError: if there is no finished run.
        SettingError: if no run has the baseline's label.
    """
    runs, unfinished = find_runs(folder)
    planned = planned_cells(folder)
    groups = grouped(runs)
    chosen = _baseline(groups, baseline)
    keys = dict.fromkeys((group.data, group.steps) for group in groups)
    names = display_names(list(dict.fromkeys(group.data for group in groups)))
    tables = tuple(_table([g for g in groups if (g.data, g.steps) == key], chosen, names[key[0]]) for key in keys)
    longest = {group.data: max(g.steps for g in groups if g.data == group.data) for group in groups}
    final = [group for group in groups if group.steps == longest[group.data]]
    several = len(longest) > 1
    return Comparison(
        folder=folder,
        models=tuple(dict.fromkeys(run.record.model.source for run in runs)),
        shared=shared_settings(runs),
        baseline=chosen,
        groups=tuple(groups),
        tables=tables,
        races=tuple(races(groups, chosen)) if chosen else (),
        ranks={m: ranks for m in TESTED if (ranks := average_ranks(final, m))} if several else {},
        unfinished=tuple(unfinished),
        planned=len(planned),
        missing=len({path.resolve() for path in planned} - {run.path.resolve() for run in runs}),
    )


def _baseline(groups: Sequence[Group], asked: str | None) -> str | None:
    labels = list(dict.fromkeys(group.method for group in groups))
    if asked is not None and asked not in labels:
        raise SettingError(f"--baseline {asked}: no run is called so; there are {', '.join(labels)}")
    if len(labels) == 1:
        return None
    return asked or ("ft" if "ft" in labels else labels[0])


def _table(groups: Sequence[Group], baseline: str | None, name: str) -> Table:
    reference = next((group for group in groups if group.method == baseline), None)
    others = [group for group in groups if group is not reference]
    tests = {measure: paired_tests(others, reference, measure) if reference else {} for measure in TESTED}
    gains = tests_from_before(groups, PRIMARY)
    first = groups[0]
    return Table(
        data=first.data,
        name=name,
        steps=first.steps,
        queries=first.query_tables[0].num_rows,
        untrained={measure: first.before(measure) for measure in DEFAULT_MEASURES},
        untrained_difficulty=_difficulty(first, "before"),
        rows=tuple(_row(group, reference, tests, gains.get(group.method)) for group in groups),
        winners=winners(groups),
    )


def _row(
    group: Group, reference: Group | None, tests: dict[str, dict[str, PairedTest]], gain: PairedTest | None
) -> Row:
    return Row(
        method=group.method,
        seeds=group.seeds,
        measures={measure: _spread(group, measure) for measure in DEFAULT_MEASURES},
        tests={measure: found[group.method] for measure, found in tests.items() if group.method in found},
        gain=gain,
        coverage=coverage(group),
        difficulty=_difficulty(group, "after"),
        seconds_a_step=group.seconds_a_step,
        step_ratio=group.seconds_a_step / reference.seconds_a_step if reference else None,
        training_seconds=group.training_seconds,
    )


def _difficulty(group: Group, when: str) -> dict[str, dict[str, float]]:
    found = {measure: by_difficulty(group, measure, when) for measure in (PRIMARY, RECALL)}
    return {measure: values for measure, values in found.items() if values is not None}


def _spread(group: Group, measure: str) -> Spread:
    values = group.values(measure)
    return Spread(float(values.mean()), float(np.std(values, ddof=1)) if len(values) > 1 else None)
