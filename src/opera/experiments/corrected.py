"""Compute test results with corrected labels from run folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.core.figures import PRIMARY, SUCCESS, column, in_points
from opera.core.terminal import counted, shown
from opera.data import Mixture, RetrievalData
from opera.data.decisions import Decisions, read_decisions
from opera.data.mixture import STRICT_UTF8, ListOptions
from opera.data.texts import TextTable
from opera.experiments.groups import Group
from opera.run_folder.folder import Run
from opera.run_folder.summary import Change

CORRECTED = (PRIMARY, "RR@10", SUCCESS)
"""Measures that need only the ten best documents of a query."""
MODELS = ("base", "final")
Labels = Mapping[str, Mapping[str, int]]
"""The grades of the relevant documents, by query id and document id."""


@dataclass(frozen=True)
class LabelFigures:
    """A method's results on test with one set of labels.

    Attributes:
        method: its label.
        labels: ``as given`` or ``corrected``.
        queries: number of test queries with a relevant document.
        base: the base model's mean by measure.
        final: the final models' mean by measure, over queries and seeds.
        changes: final minus base, by measure, with the interval over the queries.
        decided: whether the runs were trained with decisions about labels.
    """

    method: str
    labels: str
    queries: int
    base: dict[str, float]
    final: dict[str, float]
    changes: dict[str, Change]
    decided: bool


@dataclass(frozen=True)
class CorrectedTest:
    """The changes of the test labels and their effect on the results.

    Attributes:
        decisions: the files of decisions.
        removed: number of wrong labels.
        added: number of missing labels.
        confirmed: number of correct labels.
        unlabelled: number of documents without a label that are indeed not relevant.
        queries: number of test queries.
        left_out: number of test queries without a relevant document after the correction.
        notes: sentences about rows of the files that were left out.
        figures: for all methods, the results with the given and with the corrected labels.
    """

    decisions: str
    removed: int
    added: int
    confirmed: int
    unlabelled: int
    queries: int
    left_out: int
    notes: tuple[str, ...]
    figures: tuple[LabelFigures, ...]

    @property
    def sentences(self) -> list[str]:
        """Say for each method how good its models are on the corrected labels, without the full
        stops.
        """
        figures = [figures for figures in self.figures if figures.labels == "corrected"]
        titles = [f"{method.method}: " if len(figures) > 1 else "" for method in figures]
        return list(map(_sentence, titles, figures))

    @property
    def sentence(self) -> str:
        """The changes in one sentence, without the full stop."""
        text = (
            f"{counted(self.removed, 'test label')} removed, {self.added:,} added, "
            f"{self.confirmed:,} confirmed by {self.decisions}"
        )
        if self.unlabelled:
            text += f"; {counted(self.unlabelled, 'wrong document')} had no label"
        if self.left_out:
            text += (
                f"; {self.left_out:,} of {counted(self.queries, 'test query')} left out, as no "
                "relevant document remains"
            )
        return "; ".join([text, *self.notes])


def _sentence(title: str, figures: LabelFigures) -> str:
    final, base = (in_points(means[PRIMARY]) for means in (figures.final, figures.base))
    labels = "with your labels" if figures.decided else "after training"
    text = f"{title}{PRIMARY} is {final} {labels}, and was {base} before training"
    return f"{text}, on the same corrected test labels ({figures.changes[PRIMARY].in_points()})"


def correct_test(
    groups: Sequence[Group],
    paths: Sequence[str | Path],
    options: ListOptions = STRICT_UTF8,
) -> CorrectedTest:
    """Measure runs with the given test labels, and with the labels that decisions correct.

    Wrong labels are removed. Missing labels are added with the lowest relevant grade. Queries
    without a relevant document are left out. This needs neither model nor data: a run stores the
    ten best documents and the relevant documents of each test query.

    Args:
        groups: the runs, all with the same test queries.
        paths: files of decisions.
        options: how to read them.

    Raises:
        DataError: if a file cannot be read or has no decision about test, if the runs do not
            contain the pair of a decision, or if the test queries of the runs differ.
    """
    runs = [run for group in groups for run in group.runs]
    reviewed, labels = runs[0], labels_of(runs[0])
    for run in runs:
        if labels_of(run) != labels:
            raise DataError(
                f"{run.path}: its test labels differ from {reviewed.path}'s; opera report RUN RUN2 "
                "compares them where they are the same"
            )
    data, decisions, notes = read_test_decisions(runs, paths, options)
    grade = reviewed.settings["relevant_grade"]
    corrected, counts = corrected_labels(labels, data, decisions, grade)
    return CorrectedTest(
        decisions=decisions.paths,
        removed=counts["removed"],
        added=counts["added"],
        confirmed=counts["confirmed"],
        unlabelled=counts["unlabelled"],
        queries=len(labels),
        left_out=len(labels) - len(corrected),
        notes=tuple(notes),
        figures=tuple(
            _figures(group, name, values)
            for group in groups
            for name, values in (("as given", labels), ("corrected", corrected))
        ),
    )


def read_test_decisions(
    runs: Sequence[Run], paths: Sequence[str | Path], options: ListOptions
) -> tuple[RetrievalData, Decisions, list[str]]:
    """Read decisions about the test labels of runs; return the test data, the decisions and notes.

    Raises:
        DataError: as :func:`correct_test`.
    """
    data = _test_data(runs)
    mixture = replace(Mixture.of(data), list_options=options)
    decisions, notes = read_decisions(mixture, paths, only_test=True)
    if not len(decisions.relevant):
        raise DataError(
            f"{decisions.paths}: has no decision about a test label; make decisions with opera "
            "review RUN --split test"
        )
    return data, decisions, notes


def corrected_labels(
    labels: Labels, data: RetrievalData, decisions: Decisions, grade: int
) -> tuple[Labels, Counter[str]]:
    """Apply decisions to labels; return the queries that keep a label, and the changes by kind.

    Raises:
        DataError: if no query keeps a label.
    """
    corrected = {query: dict(grades) for query, grades in labels.items()}
    counts = Counter[str]()
    pairs = data.queries.ids(decisions.query_rows), data.corpus.ids(decisions.doc_rows)
    for query, document, relevant in zip(*pairs, decisions.relevant.tolist(), strict=True):
        if query not in corrected:
            continue  # a test query of another run
        grades = corrected[query]
        if not relevant:
            counts["removed" if grades.pop(document, 0) else "unlabelled"] += 1
        elif document in grades:
            counts["confirmed"] += 1
        else:
            counts["added"] += 1
            grades[document] = grade
    remaining = {query: grades for query, grades in corrected.items() if grades}
    if not remaining:
        reason = "calls every test label wrong, so no test query remains"
        raise DataError(f"{decisions.paths}: {reason}")
    return remaining, counts


def _test_data(runs: Sequence[Run]) -> RetrievalData:
    """The ids of test queries, of their labelled documents and of the best documents of all models.
    The texts are those of the reviews; other texts are empty.
    """
    queries, documents = dict[str, str](), dict[str, str]()
    hash_of: tuple[dict[str, int], dict[str, int]] = {}, {}
    for run in runs:
        table = run.per_query()
        for known, hashes in zip(hash_of, text_hashes(run) or (), strict=False):
            for text_id, text_hash in hashes.items():
                if known.setdefault(text_id, text_hash) != text_hash:
                    raise DataError(
                        f"{run.path}: its id {shown(text_id)} has another text in {runs[0].path}; "
                        "decisions about test labels fit only runs on the same data"
                    )
        queries = dict.fromkeys(table["query_id"].to_pylist(), "") | queries
        for name in ("relevant", *(column(model, "documents") for model in MODELS)):
            documents = dict.fromkeys(pc.list_flatten(table[name]).to_pylist(), "") | documents
        items = run.review()["test"]
        for item in (*items["pairs"], *items["missing"]):
            queries[item["query_id"]] = item["query"]
            documents[item["doc_id"]] = item["document"]
    return RetrievalData(
        name="test",
        source=str(runs[0].path),
        fingerprint="",
        corpus=TextTable.from_texts(documents),
        queries=TextTable.from_texts(queries),
        splits={},
    )


def labels_of(run: Run) -> Labels:
    """Return the test labels that a run was measured with."""
    table = run.per_query()
    columns = (table[name].to_pylist() for name in ("query_id", "relevant", "grades"))
    return {
        query: dict(zip(relevant, grades, strict=True))
        for query, relevant, grades in zip(*columns, strict=True)
    }


def text_hashes(run: Run) -> tuple[dict[str, int], dict[str, int]] | None:
    """Return hashes of the texts of test queries and of their relevant documents, by id; ``None``
    for a run of an earlier version.
    """
    table = run.per_query()
    if "query_hash" not in table.column_names:
        return None
    queries = zip(table["query_id"].to_pylist(), table["query_hash"].to_pylist(), strict=True)
    documents = (
        pc.list_flatten(table[name]).to_pylist() for name in ("relevant", "relevant_hashes")
    )
    return dict(queries), dict(zip(*documents, strict=True))


def _figures(group: Group, name: str, labels: Labels) -> LabelFigures:
    """Measure a method with labels; a query's value is its mean over the seeds."""
    base, final = (
        np.mean([measured(run, model, labels) for run in group.runs], axis=0) for model in MODELS
    )
    return LabelFigures(
        method=group.method,
        labels=name,
        queries=len(labels),
        base=dict(zip(CORRECTED, base.mean(axis=1).tolist(), strict=True)),
        final=dict(zip(CORRECTED, final.mean(axis=1).tolist(), strict=True)),
        changes=dict(zip(CORRECTED, map(Change.of, final - base), strict=True)),
        decided=all(run.settings["decisions"] for run in group.runs),
    )


def measured(run: Run, model: str, labels: Labels) -> NDArray[np.float64]:
    """Measure the best documents of a model: float64 ``[measures, labelled queries]``."""
    table = run.per_query()
    documents = table[column(model, "documents")].to_pylist()
    ranked = dict(zip(table["query_id"].to_pylist(), documents, strict=True))
    scores = {
        query: {document: -float(rank) for rank, document in enumerate(ranked[query])}
        for query in labels
    }
    measures = [ir_measures.parse_measure(measure) for measure in CORRECTED]
    results = ir_measures.iter_calc(measures, labels, scores)
    values = {(result.measure, result.query_id): result.value for result in results}
    return np.array(
        [[values.get((measure, query), 0.0) for query in labels] for measure in measures]
    )
