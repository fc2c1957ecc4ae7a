"""Write a report: one file from one template. Its tables also go to the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files as resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opera.core.arguments import expand_paths, flag, text, user_path
from opera.core.figures import DEFAULT_MEASURES, PRIMARY, RECALL, in_points, points
from opera.core.files import check_output, is_page, replace_file
from opera.core.page import style
from opera.core.terminal import counted
from opera.data.mixture import ListOptions
from opera.experiments.base_models import BaseModels, seconds_text
from opera.experiments.charts import (
    colour,
    forest_plots,
    labels_chart,
    learning_charts,
    queries_chart,
    sampling_charts,
    steps_charts,
)
from opera.experiments.corrected import CORRECTED, CorrectedTest
from opera.experiments.groups import format_settings, short_name
from opera.experiments.results import BASE, Comparison, ResultsTable, analyse_runs
from opera.experiments.significance import PairedTest
from opera.experiments.verdict import conclusion
from opera.experiments.verdict import title as table_title
from opera.run_folder.folder import REPORT, REPORT_FILE, SHOW_FILE, Run
from opera.run_folder.summary import dev_sentence

EXAMPLES = 3
"""Number of example queries with the largest gains, and with the largest losses."""
MAX_TITLED = 8
"""With more methods, the title has only their number."""


def report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    decisions: str | Path | Sequence[str | Path] = (),
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a self-contained HTML file on a run, a grid or any folder of runs.

    Args:
        folder: the folder to report on.
        out: the file to write; ``None`` writes ``report.html`` in the folder, and replaces an
            earlier report.
        baseline: label of the method that all other methods are tested against; by default ``ft``
            if there is one, else the first method.
        decisions: one or more files of decisions about test labels, from ``opera.review(run,
            split="test")``. The report then compares the results with the given and with the
            corrected labels. All runs must have the same test queries.
        encoding: encoding of these files, as for :func:`opera.load_data`.
        skip_bad_rows: leave out rows of these files that break a rule.
        overwrite: replace ``out`` if it exists; a file that the report reads is never replaced.

    Returns:
        The path of the file.

    Raises:
        RunFolderError: if the folder holds no finished run.
        SettingError: if the baseline is unknown, the file is not .html, or the file exists.
        DataError: if no decision is about test, or if a decision is about other queries.

    Examples:
        >>> opera.report("my-run").name
        'report.html'
    """
    folder, overwrite = user_path(folder, "folder"), flag(overwrite, "overwrite")
    baseline = None if baseline is None else text(baseline, "baseline")
    files = list(map(Path, expand_paths(decisions, "decisions")))
    options = ListOptions.checked(encoding, skip_bad_rows)
    path = folder / REPORT_FILE if out is None else user_path(out, "out")
    if folder.is_dir():
        replaces = overwrite or out is None
        check_output(
            path,
            "--out",
            (".html",),
            overwrite=overwrite,
            reads=[folder, *files],
            ours=lambda file: replaces and is_page(file, REPORT),
        )
    page = render(analyse_runs(folder, baseline, files, options), path.parent)
    replace_file(path, partial(Path.write_text, data=page, encoding="utf-8"))
    return path


def render(comparison: Comparison, folder: Path) -> str:
    """Render the page for a folder; the same runs give the same text."""
    environment = Environment(
        loader=PackageLoader("opera.experiments", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    layout = (resources("opera.experiments") / "assets" / "page.css").read_text(encoding="utf-8")
    record = comparison.groups[0].runs[0].record
    return environment.get_template("page.html").render(
        title=_title(comparison),
        models=[short_name(model) for model in comparison.models],
        runs=sum(len(group.runs) for group in comparison.groups),
        shared=format_settings(comparison.shared),
        versions=record.versions,
        device=record.device,
        comparison=comparison,
        ranks=ranks_table(comparison),
        base_models={
            models.conclusion: base_models_table(models) for models in comparison.base_models
        },
        corrected=comparison.corrected and corrected_table(comparison.corrected),
        sections=[_section(comparison, table, folder) for table in comparison.final_tables()],
        colour=colour,
        primary=PRIMARY,
        style=Markup(style("palette") + layout),
    )


def _title(comparison: Comparison) -> str:
    names = dict.fromkeys(table.name for table in comparison.tables)
    labels = dict.fromkeys(group.method for group in comparison.groups)
    methods = ", ".join(labels) if len(labels) <= MAX_TITLED else f"{len(labels)} methods"
    return f"{methods} on {', '.join(names)}"


def _section(comparison: Comparison, final: ResultsTable, folder: Path) -> dict[str, Any]:
    """The template's values for one data set."""
    best = comparison.group(final, final.recommended(comparison.baseline))
    page = best.runs[0].path / SHOW_FILE
    searches = quote(os.path.relpath(page, folder)) if page.is_file() else None
    section = {
        "name": final.name,
        "conclusion": f"{conclusion(final, comparison.baseline)}.",
        "title": table_title(final),
        "bullets": [],
        "tables": tables_of(comparison, final),
        "examples": {},
        "searches": searches,
        "show": best.runs[0].summary.next_commands()["show"],
        "labels": labels_chart(best.runs[0]),
        "cutoffs": best.runs[0].record.cutoffs,
        "shown_run": f"{best.method}, seed {best.seeds[0]}",
        "sampling": list(sampling_charts(comparison.groups_of(final))),
        "guard": [dev_sentence(row.guard.typical) for row in final.rows if row.guard],
        "warnings": final.warnings,
        "other_steps": {
            table.trained: tables_of(comparison, table)
            for table in comparison.tables
            if table.block == final.block and table is not final
        },
    }
    if len(comparison.groups) == 1 and len(best.runs) == 1:
        return {**section, **_of_run(best.runs[0], section)}
    groups = [group for group in comparison.groups if group.block == final.block]
    if len({group.steps for group in groups}) > 1:
        return {**section, "pictures": steps_charts(groups, final.base)}
    return {**section, "pictures": forest_plots(final, comparison.baseline)}


def _of_run(run: Run, section: Mapping[str, Any]) -> dict[str, Any]:
    """The values that differ if the page is about a single run."""
    changed, (verdict, *details) = run.review()["changed"], run.headlines
    return {
        "conclusion": verdict,
        "bullets": details,
        "pictures": [queries_chart(run), *learning_charts(run), *section["labels"]],
        "tables": [measures_table(run), *section["tables"][1:2]],
        "examples": {
            "gained most": changed["gains"][:EXAMPLES],
            "lost most": changed["losses"][:EXAMPLES],
        },
        "labels": [],
        "shown_run": "",
    }


Row = Mapping[str, str]
INTERVAL = "95% interval"
SECONDS = "10,000 documents"
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
                "MB": f"{encoding.megabytes:,.1f}",
            }
        rows.append(cells)
    if any(SECONDS in row for row in rows):
        columns += [SECONDS, "dimension", "MB"]
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
    columns += ["points vs base", "p vs base"]
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
        if (gain := row.gain) is not None:
            values |= {"points vs base": points(gain.difference), "p vs base": _p_value(gain)}
        rows.append(values)
    best = {measure: table.best(measure) for measure in (PRIMARY, RECALL)}
    return ReportTable(caption, columns, rows, best)


def _means(name: str, means: Mapping[str, float]) -> dict[str, str]:
    """The row of a model that was not trained."""
    return {"method": name, **{measure: in_points(means[measure]) for measure in (PRIMARY, RECALL)}}


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
