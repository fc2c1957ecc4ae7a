"""The tables of a comparison, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opera.core.intervals import in_points, points, signed
from opera.core.measure_names import DEFAULT_MEASURES, PRIMARY, RECALL
from opera.core.terminal import counted
from opera.experiments.analysis import (
    BASE,
    Comparison,
    PairedTest,
)
from opera.experiments.analysis.corrected import CORRECTED, CorrectedTest
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.analysis.results import ResultsTable
from opera.run_folder.folder import Run
from opera.run_folder.verdict import changes_on_test

Value = str | int | float | MeanStd | None
Row = Mapping[str, Value]
Columns = dict[str, Callable[[Any], str]]
INTERVAL = "95% interval"
WITH_BM25 = f"{PRIMARY} with BM25"


@dataclass(frozen=True)
class ReportTable:
    """A table.

    Attributes:
        caption: its caption.
        columns: functions that format values, by heading; the first column names the row.
        rows: values by heading; a missing value leaves a blank.
        best: the name of the row with the highest value, by heading.
    """

    caption: str
    columns: Columns
    rows: Sequence[Row]
    best: Mapping[str, str] = field(default_factory=dict)

    def cells(self, row: Row) -> list[tuple[str, bool]]:
        """The formatted values of a row after its name, and whether they are the highest."""
        first, *names = self.columns
        return [(self.shown(row, name), self.best.get(name) == row[first]) for name in names]

    def shown(self, row: Row, name: str) -> str:
        """A formatted value."""
        value = row.get(name)
        return "" if value is None else self.columns[name](value)


def tables_of(comparison: Comparison, table: ResultsTable) -> list[ReportTable]:
    """Return the tables for one data set and number of steps: quality, cost, guard."""
    guards = [_guard(table)] if any(row.guard for row in table.rows) else []
    return [_quality(comparison, table), _cost(table), *guards]


def ranks_table(comparison: Comparison) -> ReportTable | None:
    """Return the average ranks; ``None`` with a single data set."""
    ranks = comparison.ranks
    if not ranks:
        return None
    return ReportTable(
        "average rank over the data sets, at the largest number of steps of each; 1 is best",
        {"method": str, **dict.fromkeys(ranks, "{:.2f}".format)},
        [{"method": m, **{name: ranks[name][m] for name in ranks}} for m in ranks[PRIMARY]],
    )


def measures_table(run: Run) -> ReportTable:
    """Return the measures of a single run's models, and their change."""
    headings = {
        **{"bm25": "BM25", "base": "base model", "fine_tuned": "fine-tuned"},
        **{"final": "final model", "hybrid": "final + BM25"},
    }
    models = {model: heading for model, heading in headings.items() if model in run.measures}
    if run.measures["fine_tuned"] == run.measures["final"]:
        del models["fine_tuned"]
    per_query, guard = run.per_query(), run.record.guard
    names = dict.fromkeys([*DEFAULT_MEASURES, *([] if guard is None else [guard.measure])])
    changes = changes_on_test(per_query, names)
    columns: Columns = {"measure": str, **dict.fromkeys(models.values(), _in_points)}
    columns |= {"points": signed, INTERVAL: str}
    rows: list[Row] = [
        {
            "measure": name,
            **{heading: run.measures[model][name] for model, heading in models.items()},
            "points": 100 * (run.measures["final"][name] - run.measures["base"][name]),
            INTERVAL: changes[name].interval_in_points() if name in changes else "",
        }
        for name in names
    ]
    return ReportTable(counted(per_query.num_rows, "test query"), columns, rows)


def corrected_table(corrected: CorrectedTest) -> ReportTable:
    """Return the results with the given and with the corrected labels."""
    columns: Columns = {"method": str, "labels": str, "queries": "{:,}".format, PRIMARY: str}
    columns |= {"points": signed, INTERVAL: str, **dict.fromkeys(CORRECTED, str)}
    rows: list[Row] = [
        {
            "method": figures.method,
            "labels": figures.labels,
            "queries": figures.queries,
            "points": 100 * figures.changes[PRIMARY].difference,
            INTERVAL: figures.changes[PRIMARY].interval_in_points(),
            **{
                name: f"{in_points(figures.base[name])} → {in_points(figures.final[name])}"
                for name in CORRECTED
            },
        }
        for figures in corrected.figures
    ]
    return ReportTable("base model → final model", columns, rows)


def _quality(comparison: Comparison, table: ResultsTable) -> ReportTable:
    against = comparison.baseline
    columns: Columns = {"method": str, **dict.fromkeys((PRIMARY, RECALL), _in_points)}
    caption = f"quality after {table.trained}, {table.tested}"
    if against is not None:
        caption += f"; points of {PRIMARY} against {against}, p and 95% interval Holm-corrected"
        columns |= {"points": signed, INTERVAL: str, "p": _p_value}
    columns |= {"points vs base": signed, "p vs base": _p_value}
    rows: list[Row] = [{"method": BASE, **table.base}]
    if table.bm25 is not None:
        rows.insert(0, {"method": "BM25", **table.bm25})
        columns[WITH_BM25] = _in_points
    for row in table.rows:
        values: dict[str, Value] = {"method": row.method, **row.measures, WITH_BM25: row.hybrid}
        if (test := row.tests.get(PRIMARY)) is not None:
            values |= {**_points(test), "p": test.t_test_holm}
        if (gain := row.gain) is not None:
            values["points vs base"] = 100 * gain.difference
            values["p vs base"] = gain.t_test_holm
        rows.append(values)
    best = {measure: table.best(measure) for measure in (PRIMARY, RECALL)}
    return ReportTable(caption, columns, rows, best)


def _points(test: PairedTest) -> dict[str, Value]:
    """A difference and its interval, in points."""
    interval = f"{points(test.low)} to {points(test.high)}"
    return {"points": 100 * test.difference, INTERVAL: interval}


def _cost(table: ResultsTable) -> ReportTable:
    caption = f"training time, {table.trained}"
    columns: Columns = {"method": str}
    columns |= dict.fromkeys(("ms per step", "seconds of training"), "{:,.0f}".format)
    if len(table.rows) > 1:
        columns["against baseline"] = "× {:.2f}".format
    rows = [
        {
            "method": row.method,
            "ms per step": 1000 * row.seconds_per_step,
            "seconds of training": row.training_seconds,
            "against baseline": row.step_ratio,
        }
        for row in table.rows
    ]
    return ReportTable(caption, columns, rows)


def _guard(table: ResultsTable) -> ReportTable:
    columns: Columns = {"method": str, "λ by seed": str, "dev by seed": str}
    columns |= dict.fromkeys((f"{PRIMARY} fine-tuned", f"{PRIMARY} final"), _in_points)
    columns |= {"points": signed, INTERVAL: str}
    rows: list[Row] = []
    for row in table.rows:
        if (guard := row.guard) is None:
            continue
        values: dict[str, Value] = {
            "method": row.method,
            "λ by seed": " ".join(f"{weight:g}" for weight in guard.mixing_weights),
            "dev by seed": " ".join(guard.dev_verdicts),
            f"{PRIMARY} fine-tuned": guard.fine_tuned[PRIMARY],
            f"{PRIMARY} final": row.measures[PRIMARY],
        }
        if (test := guard.against_fine_tuned) is not None:
            values |= _points(test)
        rows.append(values)
    caption = f"the guard's choices, {table.trained}; points: final model against fine-tuned model"
    return ReportTable(caption, columns, rows)


def _in_points(value: float | MeanStd) -> str:
    if isinstance(value, MeanStd):
        return in_points(value.mean) + ("" if value.std is None else f" ± {in_points(value.std)}")
    return in_points(value)


def _p_value(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"
