"""The report's tables: one definition of each, for the page and for CSV."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opera.core.intervals import signed
from opera.core.terminal import printable
from opera.experiments.analysis import BUCKETS, PRIMARY, RECALL, UNTRAINED, Comparison, PairedTest
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.analysis.results import ResultsTable
from opera.retrieval.measures import DEFAULT_MEASURES

Value = str | int | float | MeanStd | None
Row = Mapping[str, Value]
Columns = dict[str, Callable[[Any], str]]


@dataclass(frozen=True)
class ReportTable:
    """One table of the report.

    Attributes:
        name: its file's name without a suffix.
        caption: what it shows.
        columns: by heading, how a value is written on the page; the first is ``method``.
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
        spread = {
            name for name in self.columns for row in self.rows if isinstance(row.get(name), MeanStd)
        }
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(
            _harmless(head)
            for name in self.columns
            for head in ([name, f"{name} std"] if name in spread else [name])
        )
        for row in self.rows:
            values: list[Value] = []
            for name in self.columns:
                value = row.get(name)
                values += [value.mean, value.std] if isinstance(value, MeanStd) else [value]
                values += [None] if name in spread and not isinstance(value, MeanStd) else []
            lines.writerow(_harmless(value) for value in values)
        return text.getvalue()

    def cells(self, row: Row) -> list[tuple[str, bool]]:
        """The values of a row after its method as the page shows them, and whether each is its column's highest."""
        return [
            (
                "" if row.get(name) is None else write(row[name]),
                self.best.get(name) == row["method"],
            )
            for name, write in self.columns.items()
            if name != "method"
        ]


def table_name(kind: str, comparison: Comparison, table: ResultsTable) -> str:
    """Return the name of a table's file: the data set, with its number where there are several, what, and the steps."""
    sources = list(dict.fromkeys(other.data for other in comparison.tables))
    number = f"{sources.index(table.data) + 1}-" if len(sources) > 1 else ""
    data = re.sub(r"[^A-Za-z0-9.]+", "-", table.name).strip("-.")[:60] or "data"
    return f"{number}{data}-{kind}-{table.steps}"


def tables_of(comparison: Comparison, table: ResultsTable) -> list[ReportTable]:
    """Return the tables on one data set with one number of steps; the last two only for its largest number."""
    found = [_quality(comparison, table), _cost(comparison, table)]
    if any(row.guard is not None for row in table.rows):
        found.append(_guard(comparison, table))
    if table is comparison.final(table.data):
        found += [
            own
            for own in (_convergence(comparison, table), _difficulty(comparison, table))
            if own.rows
        ]
    return found


def ranks_table(comparison: Comparison) -> ReportTable | None:
    """Return the average ranks; ``None`` with a single data set."""
    if not comparison.ranks:
        return None
    return ReportTable(
        "ranks",
        "average rank over the data sets, each with its largest number of steps; 1 is best",
        {"method": str, **dict.fromkeys(comparison.ranks, "{:.2f}".format)},
        [
            {
                "method": label,
                **{measure: ranks[label] for measure, ranks in comparison.ranks.items()},
            }
            for label in comparison.ranks[PRIMARY]
        ],
    )


def _quality(comparison: Comparison, table: ResultsTable) -> ReportTable:
    against = comparison.baseline
    columns: Columns = {"method": str, "seeds": str, **dict.fromkeys(DEFAULT_MEASURES, _mean_std)}
    caption = f"quality after {table.steps:,} steps, {table.queries:,} test queries"
    if against is not None:
        caption += (
            f"; points of {PRIMARY} against {against} with 95% intervals, both corrected by Holm"
        )
        columns |= {
            "points": _signed,
            "low": _signed,
            "high": _signed,
            "p": _p_value,
            "won": str,
            "lost": str,
        }
        columns |= {"points vs untrained": _signed, "p vs untrained": _p_value}
    rows: list[Row] = [{"method": UNTRAINED, **table.untrained}]
    for row in table.rows:
        test = _test(row.tests.get(PRIMARY))
        gain = {f"{name} vs untrained": value for name, value in _test(row.gain).items()}
        rows.append({"method": row.method, "seeds": len(row.seeds), **row.measures, **test, **gain})
    best = {measure: table.best(measure) for measure in DEFAULT_MEASURES}
    return ReportTable(table_name("quality", comparison, table), caption, columns, rows, best)


def _test(test: PairedTest | None) -> dict[str, Value]:
    """A test's values by heading, differences in points."""
    if test is None:
        return {}
    percent = {"points": 100 * test.difference, "low": 100 * test.low, "high": 100 * test.high}
    return {**percent, "p": test.t_test_holm, "won": test.won, "lost": test.lost}


def _cost(comparison: Comparison, table: ResultsTable) -> ReportTable:
    noise = [row.noise["pairs"] for row in table.rows if row.noise]
    caption = f"time taken, {table.steps:,} steps"
    columns: Columns = {"method": str}
    if noise:
        caption += f"; false draws: share of the draws that fell on injected pairs, which are {_share(noise[0])} of all"
        columns["false draws"] = _share
    columns["ms per step"] = columns["seconds of training"] = "{:,.0f}".format
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
    return ReportTable(table_name("cost", comparison, table), caption, columns, rows)


def _guard(comparison: Comparison, table: ResultsTable) -> ReportTable:
    columns: Columns = {"method": str, "share by seed": str, "verdict by seed": str}
    columns |= {
        f"{measure} {what}": _mean_std
        for measure in (PRIMARY, RECALL)
        for what in ("fine-tuned", "handed over")
    }
    columns |= {"points by the guard": _signed, "low": _signed, "high": _signed}
    columns |= {"dev queries": "{:,}".format, "seen in dev": _share, "seen in test": _share}
    rows: list[Row] = []
    for row in table.rows:
        if (guard := row.guard) is None:
            continue
        values: dict[str, Value] = {
            "method": row.method,
            "share by seed": " ".join(f"{share:g}" for share in guard.shares),
            "verdict by seed": " ".join(guard.verdicts),
        }
        for measure in (PRIMARY, RECALL):
            values[f"{measure} fine-tuned"] = guard.fine_tuned[measure]
            values[f"{measure} handed over"] = row.measures[measure]
        test = _test(guard.against_fine_tuned)
        values |= {
            "points by the guard": test.get("points"),
            "low": test.get("low"),
            "high": test.get("high"),
        }
        values |= {"dev queries": guard.typical.dev_queries, "seen in dev": guard.typical.dev_seen}
        rows.append({**values, "seen in test": guard.typical.test_seen})
    caption = f"what the guard handed over, {table.steps:,} steps; the untrained model is in the first table"
    return ReportTable(table_name("guard", comparison, table), caption, columns, rows)


def _convergence(comparison: Comparison, table: ResultsTable) -> ReportTable:
    found = [
        convergence for convergence in comparison.convergence if convergence.data == table.data
    ]
    caption = ""
    if found:
        best = f"{found[0].target:.3f}, at {found[0].baseline_steps:,} steps"
        caption = f"the fewest steps, if any, at which a method matches {comparison.baseline}'s best {PRIMARY}, {best}"
    return ReportTable(
        table_name("convergence", comparison, table),
        caption,
        {"method": str, "steps": "{:,}".format, "× its time": "{:.2f}".format},
        [
            {"method": own.method, "steps": own.steps, "× its time": own.seconds_ratio}
            for own in found
        ],
    )


def _difficulty(comparison: Comparison, table: ResultsTable) -> ReportTable:
    values = {
        UNTRAINED: table.untrained_difficulty,
        **{row.method: row.difficulty for row in table.rows},
    }
    kinds = {
        f"{measure} {bucket}": (measure, bucket)
        for measure in (PRIMARY, RECALL)
        for bucket in BUCKETS
    }
    return ReportTable(
        table_name("difficulty", comparison, table),
        "thirds of the test queries by the pretrained model's similarity to their relevant documents",
        {"method": str, **dict.fromkeys(kinds, "{:.3f}".format)},
        [
            {
                "method": label,
                **{kind: found[measure][bucket] for kind, (measure, bucket) in kinds.items()},
            }
            for label, found in values.items()
            if found
        ],
    )


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
