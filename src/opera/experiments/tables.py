"""The tables of a report, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opera.core.figures import DEFAULT_MEASURES, PRIMARY, RECALL, in_points, points
from opera.core.terminal import counted
from opera.experiments.base_models import BaseModels, seconds_text
from opera.experiments.corrected import CORRECTED, CorrectedTest
from opera.experiments.results import BASE, Comparison, ResultsTable
from opera.experiments.runs import RunComparison
from opera.experiments.significance import PairedTest
from opera.run_folder.folder import Run

Row = Mapping[str, str]
INTERVAL = "95% interval"
SECONDS = "10,000 documents"
VS_BASE = ("points vs base", "p vs base")
WITH_BM25 = f"{PRIMARY} with BM25"


@dataclass(frozen=True)
class ReportTable:
    """A table.

    Attributes:
        caption: its caption.
        columns: the headings; the first column names the row.
        rows: formatted values by heading; a missing value leaves a blank.
        best: the name of the row with the highest value, by heading.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    best: Mapping[str, str] = field(default_factory=dict)

    def cells(self, row: Row) -> list[tuple[str, bool]]:
        """The formatted values of a row after its name, and whether they are the highest."""
        first, *names = self.columns
        return [(row.get(name, ""), self.best.get(name) == row[first]) for name in names]


def tables_of(comparison: Comparison, table: ResultsTable) -> list[ReportTable]:
    """Return the tables for one data set and number of steps: quality, cost, guard."""
    guards = [_guard(table)] if any(row.guard for row in table.rows) else []
    return [_quality(comparison, table), _cost(table), *guards]


def ranks_table(comparison: Comparison) -> ReportTable | None:
    """Return the average ranks; ``None`` with a single data set and base model."""
    ranks = comparison.ranks
    if not ranks:
        return None
    blocks = "data sets and base models" if comparison.base_models else "data sets"
    return ReportTable(
        f"average rank over the {blocks}, at the largest number of steps of each; 1 is best",
        ["method", *ranks],
        [
            {"method": m, **{name: f"{ranks[name][m]:.2f}" for name in ranks}}
            for m in ranks[PRIMARY]
        ],
    )


def base_models_table(models: BaseModels) -> ReportTable:
    """Return the quality before and after training, and the costs, of each base model."""
    columns = ["base model", "trained with", "before", "after", "points", INTERVAL]
    rows = []
    for row in models.rows:
        cells = {
            "base model": row.model,
            "trained with": row.method,
            "before": row.base.in_points(),
            "after": row.final.in_points(),
            **({} if row.gain is None else _points(row.gain)),
        }
        if (encoding := row.encoding) is not None:
            cells |= {
                SECONDS: seconds_text(encoding.seconds),
                "dimension": f"{encoding.dimension:,}",
                "bytes per document": ""
                if encoding.bytes_per_document is None
                else f"{encoding.bytes_per_document:,.0f}",
                "MB": f"{encoding.megabytes:,.1f}",
            }
        rows.append(cells)
    if any(SECONDS in row for row in rows):
        columns += [SECONDS, "dimension", "bytes per document", "MB"]
    caption = f"base models on {models.name}: {PRIMARY} before and after training"
    best = {"after": models.best.model}
    return ReportTable(caption, columns, rows, best)


def measures_table(run: Run) -> ReportTable:
    """Return the measures of a single run's models, and their change."""
    headings = {
        **{"bm25": "BM25", "base": "base model", "fine_tuned": "fine-tuned"},
        **{"final": "final model", "hybrid": "final + BM25"},
    }
    models = {model: heading for model, heading in headings.items() if model in run.measures}
    if run.measures.get("fine_tuned") == run.measures["final"]:
        del models["fine_tuned"]
    summary, guard = run.summary, run.record.guard
    names = dict.fromkeys([*DEFAULT_MEASURES, *([] if guard is None else [guard.measure])])
    changes = summary.changes
    columns = ["measure", *models.values(), "points", INTERVAL]
    if "hybrid" in models:  # last, since the points compare the final with the base model
        columns.append(columns.pop(columns.index(models["hybrid"])))
    rows = [
        {
            "measure": name,
            **{heading: in_points(run.measures[model][name]) for model, heading in models.items()},
            "points": points(run.measures["final"][name] - run.measures["base"][name]),
            INTERVAL: changes[name].interval_in_points() if name in changes else "",
        }
        for name in names
    ]
    return ReportTable(counted(summary.queries, "test query"), columns, rows)


def runs_table(comparison: RunComparison) -> ReportTable:
    """Return the measures of several runs, and their differences from the first."""
    columns = ["run", "settings", "before", "after", "points", INTERVAL, "p", *VS_BASE]
    rows = []
    for row in comparison.rows:
        before, after = in_points(row.base[PRIMARY]), in_points(row.final[PRIMARY])
        cells = {"run": row.name, "settings": row.method, "before": before, "after": after}
        cells |= {name: in_points(row.final[name]) for name in CORRECTED[1:]}
        if (test := row.difference) is not None:
            cells |= {**_points(test), "p": _p_value(test)}
        rows.append({**cells, **_vs_base(row.gain)})
    caption = (
        f"{PRIMARY} before and after training, {comparison.tested}; points against "
        f"{comparison.rows[0].name}, p and 95% interval Holm-corrected"
    )
    return ReportTable(caption, [*columns, *CORRECTED[1:]], rows)


def corrected_table(corrected: CorrectedTest) -> ReportTable:
    """Return the results with the given and with the corrected labels."""
    primary, *others = CORRECTED
    columns = ["method", "labels", "queries", primary, "points", INTERVAL, *others]
    rows = [
        {
            "method": figures.method,
            "labels": figures.labels,
            "queries": f"{figures.queries:,}",
            "points": points(figures.changes[PRIMARY].difference),
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
    columns = ["method", PRIMARY, RECALL]
    caption = f"quality after {table.trained}, {table.tested}"
    if against is not None:
        caption += f"; points of {PRIMARY} against {against}, p and 95% interval Holm-corrected"
        columns += ["points", INTERVAL, "p"]
    columns += VS_BASE
    if table.bm25 is not None:
        columns.append(WITH_BM25)
    untrained = {"BM25": table.bm25, BASE: table.base}
    rows = [_means(name, means) for name, means in untrained.items() if means is not None]
    for row in table.rows:
        measures = {name: row.measures[name].in_points() for name in (PRIMARY, RECALL)}
        values = {"method": row.method, **measures}
        if row.hybrid is not None:
            values[WITH_BM25] = row.hybrid.in_points()
        if (test := row.tests.get(PRIMARY)) is not None:
            values |= {**_points(test), "p": _p_value(test)}
        rows.append({**values, **_vs_base(row.gain)})
    best = {measure: table.best(measure) for measure in (PRIMARY, RECALL)}
    return ReportTable(caption, columns, rows, best)


def _means(name: str, means: Mapping[str, float]) -> dict[str, str]:
    """The row of a model that was not trained."""
    return {"method": name, **{measure: in_points(means[measure]) for measure in (PRIMARY, RECALL)}}


def _vs_base(gain: PairedTest | None) -> dict[str, str]:
    """The cells of the columns :data:`VS_BASE`."""
    return (
        {}
        if gain is None
        else dict(zip(VS_BASE, (points(gain.difference), _p_value(gain)), strict=True))
    )


def _points(test: PairedTest) -> dict[str, str]:
    """A difference and its interval, in points."""
    return {"points": points(test.difference), INTERVAL: test.interval_in_points}


def _cost(table: ResultsTable) -> ReportTable:
    caption = f"training time, {table.trained}"
    columns = ["method", "ms per step", "seconds of training"]
    if len(table.rows) > 1:
        columns.append("against baseline")
    rows = [
        {
            "method": row.method,
            "ms per step": f"{1000 * row.seconds_per_step:,.0f}",
            "seconds of training": f"{row.training_seconds:,.0f}",
            "against baseline": "" if row.step_ratio is None else f"× {row.step_ratio:.2f}",
        }
        for row in table.rows
    ]
    return ReportTable(caption, columns, rows)


def _guard(table: ResultsTable) -> ReportTable:
    seeds, measures = ("λ by seed", "dev by seed"), (f"{PRIMARY} fine-tuned", f"{PRIMARY} final")
    columns = ["method", *seeds, *measures, "points", INTERVAL]
    rows = []
    for row in table.rows:
        if (guard := row.guard) is None:
            continue
        values = {
            "method": row.method,
            "λ by seed": " ".join(f"{weight:g}" for weight in guard.mixing_weights),
            "dev by seed": " ".join(guard.dev_verdicts),
            f"{PRIMARY} final": row.measures[PRIMARY].in_points(),
        }
        if guard.fine_tuned is not None:
            values[f"{PRIMARY} fine-tuned"] = guard.fine_tuned[PRIMARY].in_points()
        if (test := guard.against_fine_tuned) is not None:
            values |= _points(test)
        rows.append(values)
    caption = f"the guard's choices, {table.trained}; points: final model against fine-tuned model"
    return ReportTable(caption, columns, rows)


def _p_value(test: PairedTest) -> str:
    return "< 0.0001" if test.t_test_holm < 1e-4 else f"{test.t_test_holm:.2g}"
