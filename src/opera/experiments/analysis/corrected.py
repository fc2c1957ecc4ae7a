"""Figures on test with corrected labels, from run folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.config.trainer import PRIMARY
from opera.core.errors import DataError
from opera.core.terminal import counted, shown
from opera.data.decisions import DecidedLabel, read_test_decisions
from opera.data.pair_files import begins
from opera.data.qrels import Qrels
from opera.experiments.analysis.groups import Group
from opera.retrieval.measures import Ranking, parse_measures, per_query
from opera.runs.changes import Change, changes_on_test
from opera.runs.folder import PER_QUERY_FILE, Run
from opera.runs.names import column
from opera.runs.reading import TEXT, WHOLE, check_columns

CORRECTED = (PRIMARY, "RR@10", "Success@10")
"""Measures that the ten best documents of each query suffice for."""
MOMENTS = ("base", "final")
Labels = Mapping[str, Mapping[str, int]]
"""The grades of the relevant documents, by document id and by query id."""


@dataclass(frozen=True)
class LabelFigures:
    """A method's figures on test with one set of labels.

    Attributes:
        method: its label.
        labels: ``as given`` or ``corrected``.
        queries: how many test queries have a relevant document.
        base: mean over the queries of each measure of the base model.
        final: the same of the final models, averaged over the seeds.
        changes: after minus before, by measure, with the interval over the queries.
    """

    method: str
    labels: str
    queries: int
    base: dict[str, float]
    final: dict[str, float]
    changes: dict[str, Change]


@dataclass(frozen=True)
class CorrectedTest:
    """What decisions about test change.

    Attributes:
        decisions: the files.
        removed: labels that are wrong.
        added: labels that were missing.
        confirmed: labels that are correct.
        unlabelled: documents without a label that stay without one.
        queries: test queries.
        left_out: test queries without a relevant document once the wrong labels are removed.
        figures: with the labels as given and with the corrected ones, of each method.
    """

    decisions: str
    removed: int
    added: int
    confirmed: int
    unlabelled: int
    queries: int
    left_out: int
    figures: tuple[LabelFigures, ...]

    @property
    def sentence(self) -> str:
        """Say what was changed, without the full stop."""
        text = (
            f"{counted(self.removed, 'test label')} removed, {self.added:,} added, "
            f"{self.confirmed:,} confirmed by {self.decisions}"
        )
        if self.unlabelled:
            text += f"; {counted(self.unlabelled, 'wrong document')} had no label"
        if self.left_out:
            text += (
                f"; {self.left_out:,} of {self.queries:,} test queries are left out, since no "
                "relevant document remains"
            )
        return text


def correct_test(groups: Sequence[Group], paths: Sequence[str | Path]) -> CorrectedTest:
    """Measure runs with their test labels as given, and as decisions correct them.

    Wrong labels are removed, missing ones are added with the lowest relevant grade, and queries
    without a relevant document are left out. Neither model nor data are read: a run has the ten
    best documents and the relevant documents of each test query.

    Args:
        groups: the runs, all on the same test queries.
        paths: files of decisions.

    Raises:
        DataError: for a file that cannot be read or has no decision about test, and for decisions
            or runs on other test queries.
        RunFolderError: for a run without what is needed.
    """
    decisions, names = read_test_decisions(paths), ", ".join(map(str, paths))
    reviewed = groups[0].runs[0]
    labels = _labels(reviewed)
    for run in (run for group in groups for run in group.runs):
        if _labels(run) != labels:
            raise DataError(f"{run.path}: its test labels differ from {reviewed.path}'s")
    _check(decisions, labels, reviewed, names)
    corrected = {query: dict(grades) for query, grades in labels.items()}
    counts = Counter[str]()
    for decision in decisions:
        grades, document = corrected[decision.query_id], decision.doc_id
        if not decision.relevant:
            counts["removed" if grades.pop(document, 0) else "unlabelled"] += 1
        elif document in grades:
            counts["confirmed"] += 1
        else:
            counts["added"] += 1
            grades[document] = reviewed.settings["relevant_grade"]
    corrected = {query: grades for query, grades in corrected.items() if grades}
    if not corrected:
        raise DataError(f"{names}: calls every test label wrong: nothing is left to measure by")
    return CorrectedTest(
        decisions=names,
        removed=counts["removed"],
        added=counts["added"],
        confirmed=counts["confirmed"],
        unlabelled=counts["unlabelled"],
        queries=len(labels),
        left_out=len(labels) - len(corrected),
        figures=tuple(
            _figures(group, name, values)
            for group in groups
            for name, values in (("as given", labels), ("corrected", corrected))
        ),
    )


def _check(decisions: Sequence[DecidedLabel], labels: Labels, run: Run, names: str) -> None:
    """Refuse decisions about other queries, or with other texts than a run's review has."""
    texts: dict[tuple[str, str], str] = {}
    items = run.review()["test"]
    for item in (*items["pairs"], *items["missing"]):
        texts["query", item["query_id"]] = item["query"]
        texts["document", item["doc_id"]] = item["document"]
    for decision in decisions:
        if decision.query_id not in labels:
            what = f"query {shown(decision.query_id)} is not a test query of {run.path}"
            raise DataError(f"{names}: {what}; are they decisions about another data set?")
        listed = {
            ("query", decision.query_id): decision.query,
            ("document", decision.doc_id): decision.document,
        }
        for (kind, name), text in listed.items():
            known = texts.get((kind, name))
            if known is not None and not begins(known, text):
                raise DataError(
                    f"{names}: {kind} {shown(name)} is {shown(text)} there and {shown(known)} "
                    f"in {run.path}; are they decisions about another data set?"
                )


def _labels(run: Run) -> dict[str, dict[str, int]]:
    table, names = run.per_query(), ("query_id", "relevant", "grades")
    kinds = zip(names, (TEXT, pa.list_(TEXT), pa.list_(WHOLE)), strict=True)
    check_columns(run.path / PER_QUERY_FILE, table, dict(kinds))
    columns = (table[name].to_pylist() for name in names)
    return {
        query: dict(zip(relevant, grades, strict=True))
        for query, relevant, grades in zip(*columns, strict=True)
    }


def _figures(group: Group, name: str, labels: Labels) -> LabelFigures:
    """Measure a method with labels; each query is averaged over the seeds."""
    columns: dict[str, NDArray[np.float64]] = {}
    for when in MOMENTS:
        by_seed = [_measured(run, when, labels) for run in group.runs]
        for measure in CORRECTED:
            values = [measured[measure] for measured in by_seed]
            columns[column(when, measure)] = np.mean(values, axis=0)
    base, final = (
        {measure: float(columns[column(when, measure)].mean()) for measure in CORRECTED}
        for when in MOMENTS
    )
    changes = changes_on_test(pa.table(columns), CORRECTED)
    return LabelFigures(group.method, name, len(labels), base, final, changes)


def _measured(run: Run, when: str, labels: Labels) -> dict[str, NDArray[np.float64]]:
    """Measure the best documents of a model: float64 ``[labelled queries]`` by measure."""
    table, documents = run.per_query(), column(when, "documents")
    check_columns(run.path / PER_QUERY_FILE, table, {documents: pa.list_(TEXT)})
    ranked = dict(zip(table["query_id"].to_pylist(), table[documents].to_pylist(), strict=True))
    rows: dict[str, int] = {}  # of documents, in order of first appearance
    judged = [
        (query, rows.setdefault(doc, len(rows)), grade)
        for query, grades in enumerate(labels.values())
        for doc, grade in grades.items()
    ]
    best = [[rows.setdefault(doc, len(rows)) for doc in ranked[query]] for query in labels]
    depth = max(map(len, best))
    doc_rows = np.array([[*row, *[-1] * (depth - len(row))] for row in best], dtype=np.int32)
    ranking = Ranking(doc_rows, np.zeros(doc_rows.shape, dtype=np.float32))
    qrels = Qrels.from_arrays(*(np.array(values) for values in zip(*judged, strict=True)))
    return per_query(ranking, qrels, parse_measures(CORRECTED))
