"""The tables of a comparison: one definition of each, for the terminal, the page and CSV."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opera.core.intervals import signed
from opera.core.terminal import printable
from opera.experiments.analysis import PRIMARY, RECALL, UNTRAINED, Comparison, PairedTest
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.analysis.results import ResultsTable
from opera.retrieval.measures import DEFAULT_MEASURES

Value = str | int | float | MeanStd | None
Row = Mapping[str, Value]
Columns = dict[str, Callable[[Any], str]]


@dataclass(frozen=True)
class ReportTable:
    """One table.

    Attributes:
        name: its file's name without a suffix.
        caption: what it shows.
        columns: by heading, how a value is written; the first is ``method``.
        rows: values by heading; missing where there is none.
        best: by heading, the method with the highest value.
    """

    name: str
    caption: str
    columns: Columns
    rows: Sequence[Row]
    best: Mapping[str, str] = field(default_factory=dict)

    def csv(self) -> str:
        """All digits; a mean over seeds and its standard deviation are two columns."""
        spread = [
            name
            for name in self.columns
            if any(isinstance(row.get(name), MeanStd) for row in self.rows)
        ]
        lines = [[part for name in self.columns for part in _heads(name, name in spread)]]
        for row in self.rows:
            line: list[Any] = []
            for name in self.columns:
                value = row.get(name)
                if isinstance(value, MeanStd):
                    line += [value.mean, value.std]
                else:
                    line += [value, None] if name in spread else [value]
            lines.append(line)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([_harmless(value) for value in line] for line in lines)
        return text.getvalue()

    def cells(self, row: Row) -> list[tuple[str, bool]]:
        """A row's values after its method as they are shown, and whether each is the highest."""
        return [
            (self.shown(row, name), self.best.get(name) == row["method"])
            for name in self.columns
            if name != "method"
        ]

    def shown(self, row: Row, name: str) -> str:
        """A value as it is shown."""
        value = row.get(name)
        return "" if value is None else self.columns[name](value)


def _heads(name: str, spread: bool) -> list[str]:
    return [name, f"{name} std"] if spread else [name]


def tables_of(comparison: Comparison, table: ResultsTable) -> list[ReportTable]:
    """Return the tables on one data set with one number of steps: quality, cost, guard."""
    found = [_quality(comparison, table), _cost(table)]
    if any(row.guard is not None for row in table.rows):
        found.append(_guard(table))
    sources = list(dict.fromkeys(other.data for other in comparison.tables))
    number = f"{sources.index(table.data) + 1}-" if len(sources) > 1 else ""
    data = re.sub(r"[^A-Za-z0-9.]+", "-", table.name).strip("-.")[:60] or "data"
    return [replace(t, name=f"{number}{data}-{t.name}-{table.steps}") for t in found]


def ranks_table(comparison: Comparison) -> ReportTable | None:
    """Return the average ranks; ``None`` with a single data set."""
    ranks = comparison.ranks
    if not ranks:
        return None
    return ReportTable(
        "ranks",
        "average rank over the data sets, each with its largest number of steps; 1 is best",
        {"method": str, **dict.fromkeys(ranks, "{:.2f}".format)},
        [{"method": m, **{name: ranks[name][m] for name in ranks}} for m in ranks[PRIMARY]],
    )


def _quality(comparison: Comparison, table: ResultsTable) -> ReportTable:
    against = comparison.baseline
    columns: Columns = {"method": str, "seeds": str, **dict.fromkeys(DEFAULT_MEASURES, _mean_std)}
    caption = f"quality after {table.steps:,} steps, {table.queries:,} test queries"
    if against is not None:
        caption += (
            f"; points of {PRIMARY} against {against} with 95% intervals, both corrected by Holm"
        )
        columns |= {**dict.fromkeys(("points", "low", "high"), _signed), "p": _p_value}
        columns |= {"won": str, "lost": str}
    columns |= {"points vs untrained": _signed, "p vs untrained": _p_value}
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
    return ReportTable("quality", caption, columns, rows, best)


def _points(test: PairedTest) -> dict[str, Value]:
    """A difference and its interval, in points."""
    return {"points": 100 * test.difference, "low": 100 * test.low, "high": 100 * test.high}


def _cost(table: ResultsTable) -> ReportTable:
    noise = [row.noise["pairs"] for row in table.rows if row.noise]
    caption = f"time taken, {table.steps:,} steps"
    columns: Columns = {"method": str}
    if noise:
        caption += (
            "; false draws: share of the draws that fell on injected pairs, which are "
            f"{_share(noise[0])} of all"
        )
        columns["false draws"] = _share
    columns |= dict.fromkeys(("ms per step", "seconds of training"), "{:,.0f}".format)
    columns["against baseline"] = "× {:.2f}".format
    rows = [
        {
            "method": row.method,
            "false draws": row.noise.get("draws"),
            "ms per step": 1000 * row.seconds_per_step,
            "seconds of training": row.training_seconds,
            "against baseline": row.step_ratio,
        }
        for row in table.rows
    ]
    return ReportTable("cost", caption, columns, rows)


def _guard(table: ResultsTable) -> ReportTable:
    pairs = [(name, what) for name in (PRIMARY, RECALL) for what in ("fine-tuned", "handed over")]
    columns: Columns = {"method": str, "share by seed": str, "verdict by seed": str}
    columns |= {f"{measure} {what}": _mean_std for measure, what in pairs}
    columns |= dict.fromkeys(("points by the guard", "low", "high"), _signed)
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
            found = _points(test)
            values |= {**found, "points by the guard": found["points"]}
        rows.append(values)
    caption = (
        f"what the guard handed over, {table.steps:,} steps; the untrained model is in the first "
        "table"
    )
    return ReportTable("guard", caption, columns, rows)


def _mean_std(value: MeanStd | float) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value.mean:.3f}" + ("" if value.std is None else f" ± {value.std:.3f}")


def _signed(value: float) -> str:
    return signed(value, 1)


def _p_value(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def _share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.1 or value == 0 else f"{100 * value:.1f}%"


def _harmless(value: Value) -> Value:
    """Keep a spreadsheet from taking a label of someone else's run for a formula."""
    if not isinstance(value, str):
        return value
    # spreadsheets take full-width signs for the plain ones, and pass over white space before them
    begins = unicodedata.normalize("NFKC", value).lstrip()[:1]
    return f"'{printable(value)}" if begins in tuple("=+-@") else printable(value)
