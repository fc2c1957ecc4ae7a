"""Compare runs with each other on the same test queries: which one is better?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from opera.core.errors import DataError, RunFolderError, SettingError
from opera.core.figures import PRIMARY, in_points, points
from opera.core.terminal import counted
from opera.data.mixture import STRICT_UTF8, ListOptions
from opera.experiments.corrected import (
    CORRECTED,
    MODELS,
    Labels,
    corrected_labels,
    labels_of,
    measured,
    read_test_decisions,
    text_hashes,
)
from opera.experiments.groups import method_label, settings_of
from opera.experiments.significance import PairedTest, corrected_tests
from opera.run_folder.folder import UNFINISHED, Run


@dataclass(frozen=True)
class ComparedRun:
    """One run's row.

    Attributes:
        name: the name of its folder; its method or path, if several folders have the same name.
        method: its method, with the settings that differ between the runs.
        run: the run.
        base: the measures of its base model.
        final: the measures of its final model.
        gain: nDCG@10 of its final model against its base model; ``None`` if no test is possible.
        difference: nDCG@10 of its final model against that of the first run, Holm-corrected over
            the runs; ``None`` for the first run.
    """

    name: str
    method: str
    run: Run
    base: dict[str, float]
    final: dict[str, float]
    gain: PairedTest | None
    difference: PairedTest | None

    @property
    def decided(self) -> bool:
        """Whether the run was trained with decisions about labels."""
        return bool(self.run.settings["decisions"])


@dataclass(frozen=True)
class RunComparison:
    """Several runs, each against the first.

    Attributes:
        rows: one result per run.
        queries: number of test queries whose labels are the same in all runs.
        all_queries: number of test queries of any run.
        decisions: the files that corrected the test labels; empty without.
    """

    rows: tuple[ComparedRun, ...]
    queries: int
    all_queries: int
    decisions: str

    @property
    def tested(self) -> str:
        """The test queries, as a caption states them."""
        labels = f" with labels corrected by {self.decisions}" if self.decisions else ""
        if self.queries == self.all_queries:
            return counted(self.queries, "test query") + labels
        return (
            f"{self.queries:,} of {counted(self.all_queries, 'test query')}{labels}, the only ones "
            "with the same labels in all runs"
        )

    @property
    def sentences(self) -> list[str]:
        """Say for each run whether it is better than the first, without the full stops."""
        return [self._sentence(row) for row in self.rows[1:]]

    @property
    def worse(self) -> bool:
        """Whether the nDCG@10 of the last run is measurably below that of the first."""
        difference = self.rows[-1].difference
        return difference is not None and difference.high < 0

    def as_dict(self) -> dict[str, Any]:
        """The comparison for JSON."""
        rows = [{**asdict(row), "run": str(row.run.path)} for row in self.rows]
        return {**asdict(self), "rows": rows, "sentences": self.sentences}

    def _sentence(self, row: ComparedRun) -> str:
        first, test = self.rows[0], row.difference
        assert test is not None, "there are two queries or more"
        better = "better" if test.difference > 0 else "worse"
        outcome = f"is {better} than" if test.significant else "is not measurably different from"
        after, before = (in_points(compared.final[PRIMARY]) for compared in (row, first))
        change = f"{points(test.difference)}, 95% interval {test.interval_in_points}"
        if self.decisions and row.decided and not first.decided:
            return (
                f"{row.name} {outcome} {first.name}: {PRIMARY} is {after} with your labels, and "
                f"was {before} before, on the same corrected test labels ({change}), on "
                f"{self.tested}"
            )
        return (
            f"{row.name} {outcome} {first.name}: {PRIMARY} {after} against {before} ({change}) on "
            f"{self.tested}"
        )


def compare_runs(
    folders: Sequence[Path],
    decisions: Sequence[str | Path] = (),
    options: ListOptions = STRICT_UTF8,
) -> RunComparison:
    """Compare finished runs on the test queries whose labels are the same in all of them.

    This needs neither model nor data. With files of ``decisions`` about test labels, the runs are
    measured with the corrected labels; ``options`` say how to read the files.

    Raises:
        SettingError: if a folder is given twice.
        RunFolderError: if a folder is not a finished run.
        DataError: if the runs share fewer than two test queries, or the decisions do not fit them.
    """
    runs = _finished(folders)
    labels = [labels_of(run) for run in runs]
    if decisions:
        data, decided, _ = read_test_decisions(runs, decisions, options)
        labels = [
            corrected_labels(given, data, decided, run.settings["relevant_grade"])[0]
            for given, run in zip(labels, runs, strict=True)
        ]
    queries = _queries_by_text(runs, labels)
    first, *others = queries
    shared = [
        text
        for text, query in first.items()
        if all(text in other and other[text].grades == query.grades for other in others)
    ]
    if len(shared) < 2:
        raise DataError(
            f"{', '.join(map(str, folders))}: share {len(shared)} test queries with the same "
            "texts and labels, too few to compare the runs; train both with the same seed, or "
            "keep a test file (--pairs test=FILE)"
        )
    shared_labels = [
        {by_text[text].query_id: labels_of_run[by_text[text].query_id] for text in shared}
        for by_text, labels_of_run in zip(queries, labels, strict=True)
    ]
    all_queries = len(set().union(*queries))
    files = ", ".join(map(str, decisions))
    return RunComparison(tuple(_rows(runs, shared_labels)), len(shared), all_queries, files)


class _Query(NamedTuple):
    """A test query: its id in one run, and the grades of its relevant documents by text."""

    query_id: str
    grades: dict[int | str, int]


def _queries_by_text(
    runs: Sequence[Run], labels: Sequence[Labels]
) -> list[dict[int | str, _Query]]:
    """Return the test queries of each run by the hash of their text, or by id if a run has no
    hashes. A document without a hash goes by its id.

    The ids of a table without ids are row numbers, so they differ from export to export.
    """
    hashes = [text_hashes(run) for run in runs]
    tables = []
    for labels_of_run, hashes_of_run in zip(labels, hashes, strict=True):
        queries, documents = hashes_of_run if hashes_of_run and all(hashes) else ({}, {})
        tables.append(
            {
                queries.get(query, query): _Query(
                    query, {documents.get(doc, doc): grade for doc, grade in grades.items()}
                )
                for query, grades in labels_of_run.items()
            }
        )
    return tables


def _finished(folders: Sequence[Path]) -> list[Run]:
    """Open the runs, each once."""
    runs, resolved = [Run.open(folder) for folder in folders], [f.resolve() for f in folders]
    for number, run in enumerate(runs):
        if resolved[number] in resolved[:number]:
            raise SettingError(f"GRID|RUN: {run.path} is given twice")
        if not run.finished:
            raise RunFolderError(f"{run.path}: {UNFINISHED}")
    return runs


def _rows(runs: Sequence[Run], labels: Sequence[Labels]) -> list[ComparedRun]:
    """Measure the runs, each with its labels of the same test queries."""
    values = [
        [measured(run, model, labels_of_run) for model in MODELS]
        for run, labels_of_run in zip(runs, labels, strict=True)
    ]
    primary = CORRECTED.index(PRIMARY)
    methods = _methods(runs)
    names = _names(runs, methods)
    differences = corrected_tests(
        {
            name: final[primary] - values[0][1][primary]
            for name, (_, final) in zip(names[1:], values[1:], strict=True)
        }
    )
    return [
        ComparedRun(
            name=name,
            method=method,
            run=run,
            base=dict(zip(CORRECTED, base.mean(axis=1).tolist(), strict=True)),
            final=dict(zip(CORRECTED, final.mean(axis=1).tolist(), strict=True)),
            gain=corrected_tests({name: final[primary] - base[primary]}).get(name),
            difference=differences.get(name),
        )
        for name, method, run, (base, final) in zip(names, methods, runs, values, strict=True)
    ]


def _names(runs: Sequence[Run], methods: list[str]) -> list[str]:
    """Name runs by their folders, else by their methods, else by their paths."""
    choices = [run.path.resolve().name for run in runs], methods, [str(run.path) for run in runs]
    return next(names for names in choices if len({*names}) == len(runs))


def _methods(runs: Sequence[Run]) -> list[str]:
    """Label runs by their methods and all settings that differ."""
    settings = settings_of(runs)
    differing = frozenset(
        name
        for name in set[str]().union(*settings) - {"method"}
        if len({repr(values.get(name)) for values in settings}) > 1
    )
    return [method_label(values, differing) for values in settings]
