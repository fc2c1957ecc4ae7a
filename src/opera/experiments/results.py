"""The results of a folder of runs, for the tables, the JSON and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from opera.core.errors import SettingError
from opera.core.figures import DEFAULT_MEASURES, PRIMARY, RECALL
from opera.core.terminal import counted
from opera.data.mixture import STRICT_UTF8, ListOptions
from opera.data.names import DataName
from opera.experiments.base_models import BaseModels, compare_models
from opera.experiments.corrected import CorrectedTest, correct_test
from opera.experiments.encoding_time import read_encodings
from opera.experiments.groups import (
    Group,
    MeanStd,
    display_names,
    find_runs,
    group_runs,
    shared_settings,
)
from opera.experiments.significance import PairedTest, paired_tests, paired_tests_within
from opera.run_folder.record import GuardRecord
from opera.run_folder.summary import warnings_of

TESTED = (PRIMARY, RECALL)
BASE = "base"
DEFAULT_BASELINE = "ft"


@dataclass(frozen=True)
class GuardResult:
    """The guard's choices in the runs of one method.

    Attributes:
        mixing_weights: λ by seed.
        dev_verdicts: ``better``, ``same`` or ``kept`` on dev, by seed.
        typical: the record of the first seed; without its measures on test if there are more.
        warnings: reasons to trust the choice less.
        fine_tuned: the measures of the fine-tuned models, λ = 1; ``None`` if a run has none.
        against_fine_tuned: nDCG@10 of the final models against the fine-tuned ones,
            Holm-corrected over the methods; ``None`` with fewer than two test queries.
    """

    mixing_weights: tuple[float, ...]
    dev_verdicts: tuple[str, ...]
    typical: GuardRecord
    warnings: tuple[str, ...]
    fine_tuned: dict[str, MeanStd] | None
    against_fine_tuned: PairedTest | None


@dataclass(frozen=True)
class MethodResult:
    """One method's row in a table.

    Attributes:
        method: its label.
        steps: optimizer steps.
        seeds: the seeds.
        measures: the measures of the final models.
        tests: tests against the baseline by measure; empty for the baseline, and if no test is
            possible.
        gain: nDCG@10 of the final models against the base model, Holm-corrected over the
            methods; ``None`` with fewer than two queries.
        hybrid: nDCG@10 of the final models with keyword search; ``None`` if it was not measured.
        guard: the guard's choices; ``None`` for runs without a guard.
        seconds_per_step: seconds per training step.
        step_ratio: ``seconds_per_step`` divided by the baseline's; ``None`` without a baseline.
        training_seconds: seconds of training.
    """

    method: str
    steps: int
    seeds: tuple[int, ...]
    measures: dict[str, MeanStd]
    tests: dict[str, PairedTest]
    gain: PairedTest | None
    hybrid: MeanStd | None
    guard: GuardResult | None
    seconds_per_step: float
    step_ratio: float | None
    training_seconds: float


@dataclass(frozen=True)
class ResultsTable:
    """All methods on one data set with one base model and one number of steps, or with automatic
    steps.

    Attributes:
        data: the data set, as the user named it.
        model: the short name of the base model.
        name: the short name of the data set; with several base models, that of the model too.
        steps: optimizer steps; the largest number, if they were automatic.
        requested_steps: the steps that the user set; ``None`` if they were automatic.
        queries: number of test queries, over all seeds.
        different_splits: whether the seeds have different test queries.
        base: the measures of the first method's base model.
        bm25: the measures of keyword search; ``None`` if it was not measured.
        rows: one result per method.
    """

    data: DataName
    model: str
    name: str
    steps: int
    requested_steps: int | None
    queries: int
    different_splits: bool
    base: dict[str, float]
    bm25: dict[str, float] | None
    rows: tuple[MethodResult, ...]

    @property
    def block(self) -> tuple[DataName, str]:
        """The data set and the base model."""
        return self.data, self.model

    @property
    def methods(self) -> list[str]:
        """The labels of the rows."""
        return [row.method for row in self.rows]

    @property
    def trained(self) -> str:
        """The steps as text: ``300 steps``; ``50 to 200 steps`` if they differ by method."""
        fewest = min(row.steps for row in self.rows)
        return ("" if fewest == self.steps else f"{fewest:,} to ") + counted(self.steps, "step")

    @property
    def tested(self) -> str:
        """The test queries, as a caption states them."""
        note = (
            ", a new split for each seed (± includes its variation)"
            if self.different_splits
            else ""
        )
        return counted(self.queries, "test query") + note

    @property
    def warnings(self) -> list[str]:
        """Reasons to trust the table or the guard's choices less."""
        guards = [row.guard for row in self.rows if row.guard is not None]
        return list(dict.fromkeys(warning for guard in guards for warning in guard.warnings))

    def best(self, measure: str) -> str:
        """The label with the highest mean, or ``base``."""
        row = max(self.rows, key=lambda row: row.measures[measure].mean)
        return row.method if row.measures[measure].mean > self.base[measure] else BASE

    def recommended(self, baseline: str | None) -> str:
        """Return the method to use, or ``base``.

        The first choice is a method that is significantly better than the base model and the
        baseline. The second is the baseline, if it is better than the base model. The third is any
        method that is better than the base model. Otherwise, or if the table lacks the baseline,
        keep the base model.
        """
        return self.winner(baseline)[0]

    def winner(self, baseline: str | None) -> tuple[str, PairedTest | None, str]:
        """The method to use, its test, and the model that the test compares it with."""
        gains = {row.method: row.gain for row in self.rows if row.gain and row.gain.better}
        tests = {row.method: row.tests[PRIMARY] for row in self.rows if PRIMARY in row.tests}
        winners = {
            method: test for method, test in tests.items() if method in gains and test.better
        }
        against = str(baseline)
        if baseline is not None and baseline not in self.methods:
            winners = {}
        elif baseline in gains:
            winners = winners or {against: gains[against]}
        elif not winners:
            winners, against = gains, "the base model"
        method = max(winners, key=lambda method: winners[method].difference, default=BASE)
        return method, winners.get(method), against


@dataclass(frozen=True)
class Comparison:
    """The results of a folder of runs.

    Attributes:
        folder: the folder.
        models: the base models.
        shared: training settings that all runs share and that differ from the defaults.
        baseline: label of the method that all other methods are tested against; ``None`` with a
            single method.
        groups: the runs.
        tables: one per data set, base model and number of steps.
        base_models: which base model to use, one per data set with several base models.
        left_out: the runs that are not compared, with the reason.
        corrected: results with corrected test labels; ``None`` without decisions.
    """

    folder: Path
    models: tuple[str, ...]
    shared: dict[str, Any]
    baseline: str | None
    groups: tuple[Group, ...]
    tables: tuple[ResultsTable, ...]
    base_models: tuple[BaseModels, ...]
    left_out: list[str]
    corrected: CorrectedTest | None = None

    def as_dict(self) -> dict[str, Any]:
        """The comparison without the runs, for JSON."""
        tables = [asdict(table) for table in self.tables]
        for row in (row for table in tables for row in table["rows"]):
            if row["guard"] is not None:
                row["guard"]["typical"] = row["guard"]["typical"].model_dump()
        return {
            "folder": str(self.folder),
            "models": list(self.models),
            "shared_settings": self.shared,
            "baseline": self.baseline,
            "tables": tables,
            "base_models": [models.as_dict() for models in self.base_models],
            "average_ranks": self.ranks,
            "left_out": self.left_out,
            "corrected_test": None if self.corrected is None else asdict(self.corrected),
        }

    @cached_property
    def ranks(self) -> dict[str, dict[str, float]]:
        """The average ranks by measure, at the largest number of steps of each data set and base
        model; empty for one data set and base model.
        """
        ranks = {measure: average_ranks(self.final_groups, measure) for measure in TESTED}
        return {measure: by_label for measure, by_label in ranks.items() if by_label}

    @property
    def final_groups(self) -> list[Group]:
        """The runs with the largest number of steps of their data sets and base models."""
        return [group for table in self.final_tables() for group in self.groups_of(table)]

    def final_tables(self) -> list[ResultsTable]:
        """The tables with the largest number of steps, one per data set and base model."""
        return [
            max((table for table in self.tables if table.block == block), key=lambda t: t.steps)
            for block in dict.fromkeys(table.block for table in self.tables)
        ]

    @property
    def sentences(self) -> list[str]:
        """Say how good the models are on corrected test labels, and which base model to use,
        without the full stops.
        """
        corrected = [] if self.corrected is None else self.corrected.sentences
        several = len(self.base_models) > 1
        titles = [f"{models.name}: " if several else "" for models in self.base_models]
        conclusions = [models.conclusion for models in self.base_models]
        return [*corrected, *map("".join, zip(titles, conclusions, strict=True))]

    @property
    def worse(self) -> bool:
        """Whether the nDCG@10 of a method is measurably below that of its base model."""
        return any(row.gain and row.gain.high < 0 for table in self.tables for row in table.rows)

    def group(self, table: ResultsTable, method: str) -> Group:
        """The runs of a method in a table; those of the first method if it is not in the table."""
        groups = self.groups_of(table)
        return next((group for group in groups if group.method == method), groups[0])

    def groups_of(self, table: ResultsTable) -> list[Group]:
        """The runs of a table."""
        key = table.block, table.requested_steps
        return [group for group in self.groups if (group.block, group.requested_steps) == key]


def analyse_runs(
    folder: Path,
    baseline: str | None = None,
    decisions: Sequence[str | Path] = (),
    options: ListOptions = STRICT_UTF8,
) -> Comparison:
    """Analyse the finished runs in a grid, a run, or any folder of runs. Reads only run folders.

    ``baseline`` is the label of the method to test against; ``None`` means ``ft`` if there is one,
    else the first method. ``decisions`` are files of decisions about test labels, which
    ``options`` say how to read.

    Raises:
        RunFolderError: if no run is finished.
        SettingError: if no run has the baseline's label.
        DataError: if the decisions do not fit the runs.
    """
    runs, left_out = find_runs(folder)
    groups = group_runs(runs)
    labels = list(dict.fromkeys(group.method for group in groups))
    if baseline is not None and baseline not in labels:
        known = ", ".join(labels)
        raise SettingError(f"--baseline {baseline}: no run has this label; the labels are {known}")
    if len(labels) == 1:
        baseline = None
    elif baseline is None:
        baseline = DEFAULT_BASELINE if DEFAULT_BASELINE in labels else labels[0]
    by_key: dict[tuple[tuple[DataName, str], int | None], list[Group]] = {}
    for group in groups:
        by_key.setdefault((group.block, group.requested_steps), []).append(group)
    names = _block_names(groups)
    comparison = Comparison(
        folder=folder,
        models=tuple(dict.fromkeys(run.record.model.source for run in runs)),
        shared=shared_settings(runs),
        baseline=baseline,
        groups=tuple(groups),
        tables=tuple(
            _table(members, baseline, names[block]) for (block, _), members in by_key.items()
        ),
        base_models=(),
        left_out=left_out,
    )
    comparison = replace(comparison, base_models=tuple(_base_models(comparison)))
    if not decisions:
        return comparison
    return replace(comparison, corrected=correct_test(comparison.final_groups, decisions, options))


def _block_names(groups: Sequence[Group]) -> dict[tuple[DataName, str], str]:
    """Name the data sets; with several base models, each with its model."""
    names = display_names(list(dict.fromkeys(group.data for group in groups)))
    several = len({group.model for group in groups}) > 1
    return {
        group.block: f"{names[group.data]} with {group.model}" if several else names[group.data]
        for group in groups
    }


def _base_models(comparison: Comparison) -> Iterator[BaseModels]:
    """Compare the base models of each data set that has several."""
    encodings, finals = read_encodings(comparison.folder), comparison.final_tables()
    names = display_names(list(dict.fromkeys(table.data for table in finals)))
    for data, name in names.items():
        tables = [table for table in finals if table.data == data]
        if len(tables) > 1:
            methods = [table.recommended(comparison.baseline) for table in tables]
            groups = list(map(comparison.group, tables, methods))
            costs = {
                group.model: encodings[run.path]
                for group in comparison.groups
                for run in group.runs
                if group.data == data and run.path in encodings
            }
            yield compare_models(name, groups, costs)


def _table(groups: Sequence[Group], baseline: str | None, name: str) -> ResultsTable:
    first, reference = groups[0], next((g for g in groups if g.method == baseline), None)
    others = [group for group in groups if group is not reference]
    tests = {m: paired_tests(others, reference, m) for m in TESTED} if reference else {}
    gains, guards = paired_tests_within(groups), guard_results(groups)
    rows = [
        MethodResult(
            method=group.method,
            steps=group.steps,
            seeds=group.seeds,
            measures={measure: group.mean_std(measure) for measure in DEFAULT_MEASURES},
            tests={
                measure: by_method[group.method]
                for measure, by_method in tests.items()
                if group.method in by_method
            },
            gain=gains.get(group.method),
            hybrid=group.mean_std(PRIMARY, "hybrid") if group.has("hybrid") else None,
            guard=guards.get(group.method),
            seconds_per_step=group.seconds_per_step,
            step_ratio=group.seconds_per_step / reference.seconds_per_step if reference else None,
            training_seconds=group.training_seconds,
        )
        for group in groups
    ]
    queries_by_seed = [set(table["query_id"].to_pylist()) for table in first.query_tables]
    all_queries = set().union(*queries_by_seed)
    return ResultsTable(
        data=first.data,
        model=first.model,
        name=name,
        steps=max(group.steps for group in groups),
        requested_steps=first.requested_steps,
        queries=len(all_queries),
        different_splits=any(queries != all_queries for queries in queries_by_seed),
        base=first.means("base"),
        bm25=first.means("bm25") if first.has("bm25") else None,
        rows=tuple(rows),
    )


def guard_results(groups: Sequence[Group]) -> dict[str, GuardResult]:
    """Collect the guard's choices by label; a group with an unguarded run is left out."""
    guarded = [group for group in groups if all(run.record.guard for run in group.runs)]
    tests = paired_tests_within(guarded, "final", "fine_tuned")
    results = {}
    for group in guarded:
        records = [run.record.guard for run in group.runs if run.record.guard]
        typical = records[0]
        if len(records) > 1:  # one seed must not cause warnings about test
            typical = typical.model_copy(update={"test": None, "second": None})
        results[group.method] = GuardResult(
            mixing_weights=tuple(record.mixing_weight for record in records),
            dev_verdicts=tuple(record.dev_verdict for record in records),
            typical=typical,
            warnings=tuple(warnings_of(typical)),
            fine_tuned={name: group.mean_std(name, "fine_tuned") for name in DEFAULT_MEASURES}
            if group.has("fine_tuned")
            else None,
            against_fine_tuned=tests.get(group.method),
        )
    return results


def average_ranks(groups: Sequence[Group], measure: str) -> dict[str, float]:
    """Average the ranks of the methods over the data sets (Table 2) and base models.

    Each group is one method in one block, a data set with a base model. Methods that lack a block
    are left out. The result is empty if fewer than two methods or blocks remain. Rank 1 is best.
    """
    from pandas import Series  # here, since pandas takes half a second to import

    means = Series(
        {
            (str(group.data), group.model, group.method): group.mean_std(measure).mean
            for group in groups
        }
    )
    table = means.unstack(sort=False).dropna(axis="columns")
    if min(table.shape) < 2:
        return {}
    # equal values share the mean of their ranks
    return dict(table.rank(axis="columns", ascending=False).mean())
