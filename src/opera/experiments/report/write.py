"""Write a report: one file from one template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opera.core.arguments import expand_paths, flag, text, user_path
from opera.core.figures import PRIMARY
from opera.core.files import check_output, replace_file
from opera.data.mixture import ListOptions
from opera.experiments.analysis import (
    Comparison,
    ResultsTable,
    analyse_runs,
    format_settings,
    short_name,
)
from opera.experiments.analysis.verdict import conclusion, recommended
from opera.experiments.analysis.verdict import title as table_title
from opera.experiments.report.charts import (
    colour,
    forest_plots,
    labels_chart,
    learning_charts,
    queries_chart,
    sampling_charts,
    steps_charts,
)
from opera.experiments.report.tables import (
    corrected_table,
    measures_table,
    ranks_table,
    tables_of,
)
from opera.run_folder.folder import REPORT_FILE, Run, is_report
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
            ours=lambda file: replaces and is_report(file),
        )
    page = render(analyse_runs(folder, baseline, files, options))
    replace_file(path, partial(Path.write_text, data=page, encoding="utf-8"))
    return path


def render(comparison: Comparison) -> str:
    """Render the page; the same runs give the same text."""
    environment = Environment(
        loader=PackageLoader("opera.experiments.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = resources("opera.experiments.report") / "assets" / "page.css"
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
        corrected=comparison.corrected and corrected_table(comparison.corrected),
        sections=[_section(comparison, table) for table in comparison.final_tables()],
        colour=colour,
        primary=PRIMARY,
        style=Markup(style.read_text(encoding="utf-8")),
    )


def _title(comparison: Comparison) -> str:
    names = dict.fromkeys(table.name for table in comparison.tables)
    labels = dict.fromkeys(group.method for group in comparison.groups)
    methods = ", ".join(labels) if len(labels) <= MAX_TITLED else f"{len(labels)} methods"
    return f"{methods} on {', '.join(names)}"


def _section(comparison: Comparison, final: ResultsTable) -> dict[str, Any]:
    """The template's values for one data set."""
    best = comparison.group(final, recommended(final, comparison.baseline))
    section = {
        "name": final.name,
        "conclusion": f"{conclusion(final, comparison.baseline)}.",
        "title": table_title(final),
        "bullets": [],
        "tables": tables_of(comparison, final),
        "examples": {},
        "labels": labels_chart(best.runs[0]),
        "cutoffs": best.runs[0].record.cutoffs,
        "shown_run": f"{best.method}, seed {best.seeds[0]}",
        "sampling": list(sampling_charts(comparison.groups_of(final))),
        "guard": [dev_sentence(row.guard.typical) for row in final.rows if row.guard],
        "warnings": final.warnings,
        "other_steps": {
            table.trained: tables_of(comparison, table)
            for table in comparison.tables
            if table.data == final.data and table is not final
        },
    }
    if len(comparison.groups) == 1 and len(best.runs) == 1:
        return {**section, **_of_run(best.runs[0], section)}
    groups = [group for group in comparison.groups if group.data == final.data]
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
