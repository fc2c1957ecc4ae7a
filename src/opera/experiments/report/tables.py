"""The tables of a comparison: one definition of each, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opera.core.intervals import signed
from opera.experiments.analysis import PRIMARY, RECALL, UNTRAINED, Comparison, PairedTest
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.analysis.results import ResultsTable
from opera.retrieval.measures import DEFAULT_MEASURES

Value = str | int | float | MeanStd | None
Row = Mapping[str, Value]
Columns = dict[str, Callable[[Any], str]]
_value = "{:.3f}".format


@dataclass(frozen=True)
class ReportTable:
    """One table.

    Attributes:
        caption: what it shows.
        columns: by heading, how a value is written; the first is ``method``.
        rows: values by heading; missing where there is none.
        best: by heading, the method with the highest value.
    """

    caption: str
    columns: Columns
    rows: Sequence[Row]
    best: Mapping[str, str] = field(default_factory=dict)

    def cells(self, row: Row) -> list[tuple[str, bool]]:
        """A row's values after its method as they are shown, and whether each is the highest."""
        names = [name for name in self.columns if name != "method"]
        return [(self.shown(row, name), self.best.get(name) == row["method"]) for name in names]

    def shown(self, row: Row, name: str) -> str:
        """A value as it is shown."""
        value = row.get(name)
        return "" if value is None else self.columns[name](value)


def tables_of(comparison: Comparison, table: ResultsTable) -> list[ReportTable]:
    """Return the tables on one data set with one number of steps: quality, cost, guard."""
    tables = [_quality(comparison, table), _cost(table)]
    guarded = any(row.guard is not None for row in table.rows)
    return [*tables, _guard(table)] if guarded else tables


def ranks_table(comparison: Comparison) -> ReportTable | None:
    """Return the average ranks; ``None`` with a single data set."""
    ranks = comparison.ranks
    if not ranks:
        return None
    return ReportTable(
        "average rank over the data sets, each with its largest number of steps; 1 is best",
        {"method": str, **dict.fromkeys(ranks, "{:.2f}".format)},
        [{"method": m, **{name: ranks[name][m] for name in ranks}} for m in ranks[PRIMARY]],
    )


def _quality(comparison: Comparison, table: ResultsTable) -> ReportTable:
    against = comparison.baseline
    columns: Columns = {
        "method": str,
        "seeds": str,
        **dict.fromkeys(DEFAULT_MEASURES, _value),
    }
    caption = f"quality after {table.steps:,} steps, {table.tested}"
    if against is not None:
        caption += (
            f"; points of {PRIMARY} against {against} with 95% intervals, both corrected by Holm"
        )
        columns |= {**dict.fromkeys(("points", "low", "high"), signed), "p": _p_value}
        columns |= {"won": str, "lost": str}
    columns |= {"points vs untrained": signed, "p vs untrained": _p_value}
    rows: list[Row] = [{"method": UNTRAINED, **table.untrained}]
    for row in table.rows:
        values: dict[str, Value] = {"method": row.method, "seeds": len(row.seeds), **row.measures}
        if (test := row.tests.get(PRIMARY)) is not None:
            values |= {**_points(test), "p": test.t_test_holm, "won": test.won, "lost": test.lost}
        if (gain := row.gain) is not None:
            values["points vs untrained"] = 100 * gain.difference
            values["p vs untrained"] = gain.t_test_holm
        rows.append(values)
    best = {measure: table.best(measure) for measure in DEFAULT_MEASURES}
    return ReportTable(caption, columns, rows, best)


def _points(test: PairedTest) -> dict[str, Value]:
    """A difference and its interval, in points."""
    return {"points": 100 * test.difference, "low": 100 * test.low, "high": 100 * test.high}


def _cost(table: ResultsTable) -> ReportTable:
    caption = f"time taken, {table.steps:,} steps"
    columns: Columns = {"method": str}
    columns |= dict.fromkeys(("ms per step", "seconds of training"), "{:,.0f}".format)
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
    pairs = [(name, what) for name in (PRIMARY, RECALL) for what in ("fine-tuned", "handed over")]
    columns: Columns = {"method": str, "share by seed": str, "verdict by seed": str}
    columns |= {f"{measure} {what}": _value for measure, what in pairs}
    columns |= dict.fromkeys(("points by the guard", "low", "high"), signed)
    columns |= {"dev queries": "{:,}".format, "seen in dev": _share, "seen in test": _share}
    rows: list[Row] = []
    for row in table.rows:
        if (guard := row.guard) is None:
            continue
        values: dict[str, Value] = {
            "method": row.method,
            "share by seed": " ".join(f"{share:g}" for share in guard.shares),
            "verdict by seed": " ".join(guard.verdicts),
            "dev queries": guard.typical.dev_queries,
            "seen in dev": guard.typical.dev_seen,
            "seen in test": guard.typical.test_seen,
        }
        for name, what in pairs:
            of = guard.fine_tuned if what == "fine-tuned" else row.measures
            values[f"{name} {what}"] = of[name]
        if (test := guard.against_fine_tuned) is not None:
            difference = _points(test)
            values |= {**difference, "points by the guard": difference["points"]}
        rows.append(values)
    caption = (
        f"what the guard handed over, {table.steps:,} steps; the untrained model is in the first "
        "table"
    )
    return ReportTable(caption, columns, rows)


def _p_value(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def _share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.1 or value == 0 else f"{100 * value:.1f}%"
