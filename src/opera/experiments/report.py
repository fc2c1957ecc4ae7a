"""Write a report: one file from one template."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files as resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opera.core.arguments import expand_paths, flag, text, user_path
from opera.core.errors import SettingError
from opera.core.figures import PRIMARY, points
from opera.core.files import check_output, is_page, replace_file
from opera.core.page import style
from opera.data.mixture import ListOptions
from opera.experiments.charts import (
    colour,
    forest,
    forest_plots,
    labels_chart,
    learning_charts,
    queries_chart,
    sampling_charts,
    steps_charts,
)
from opera.experiments.groups import format_settings, short_name
from opera.experiments.results import Comparison, ResultsTable, analyse_runs
from opera.experiments.runs import RunComparison, compare_runs
from opera.experiments.tables import (
    base_models_table,
    corrected_table,
    measures_table,
    ranks_table,
    runs_table,
    tables_of,
)
from opera.experiments.verdict import conclusion
from opera.experiments.verdict import title as table_title
from opera.run_folder.folder import REPORT, REPORT_FILE, SHOW_FILE, Run
from opera.run_folder.summary import dev_sentence

EXAMPLES = 3
"""Number of example queries with the largest gains, and with the largest losses."""
MAX_TITLED = 8
"""With more methods, the title has only their number."""


def report(
    folder: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    decisions: str | Path | Sequence[str | Path] = (),
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a self-contained HTML file on a run, a grid or any folder of runs; or on which of
    several runs is better.

    Args:
        folder: the folder to report on; or several runs. Each is compared with the first, on the
            test queries whose labels are the same in all runs.
        out: the file to write; ``None`` writes ``report.html`` in the folder, of several runs in
            the last, and replaces an earlier report.
        baseline: label of the method that all other methods are tested against; by default ``ft``
            if there is one, else the first method.
        decisions: one or more files of decisions about test labels, from ``opera.review(run,
            split="test")``. The report then compares the results with the given and with the
            corrected labels. All runs of a folder must have the same test queries. Several runs are
            compared on the corrected labels.
        encoding: encoding of these files, as for :func:`opera.load_data`.
        skip_bad_rows: leave out rows of these files that break a rule.
        overwrite: replace ``out`` if it exists; a file that the report reads is never replaced.

    Returns:
        The path of the file.

    Raises:
        RunFolderError: if the folder holds no finished run, or one of several is not a run.
        SettingError: if the baseline is unknown, the file is not .html, or the file exists.
        DataError: if no decision is about test, or if a decision is about other queries; or if the
            runs have no test queries in common.

    Examples:
        >>> opera.report("my-run").name
        'report.html'
    """
    folders = list(map(Path, expand_paths(folder, "folder")))
    baseline = None if baseline is None else text(baseline, "baseline")
    options = ListOptions.checked(encoding, skip_bad_rows)
    files = list(map(Path, expand_paths(decisions, "decisions")))
    path = None if out is None else user_path(out, "out")
    overwrite = flag(overwrite, "overwrite")
    return write_report(folders, path, baseline, files, options, overwrite)[0]


def write_report(
    folders: Sequence[Path],
    out: Path | None,
    baseline: str | None,
    decisions: Sequence[Path],
    options: ListOptions,
    overwrite: bool,
) -> tuple[Path, Comparison | RunComparison]:
    """Write the page of :func:`report`; return its path and the analysis."""
    if not folders:
        raise SettingError("folder: pass at least one")
    path = folders[-1] / REPORT_FILE if out is None else out
    if folders[-1].is_dir():
        replaces = overwrite or out is None
        check_output(
            path,
            "--out",
            (".html",),
            overwrite=overwrite,
            reads=[*folders, *decisions],
            ours=lambda file: replaces and is_page(file, REPORT),
        )
    analysis = analyse(folders, baseline, decisions, options)
    if isinstance(analysis, Comparison):
        page = render(analysis, path.parent)
    else:
        page = render_runs(analysis)
    replace_file(path, partial(Path.write_text, data=page, encoding="utf-8"))
    return path, analysis


def analyse(
    folders: Sequence[Path],
    baseline: str | None,
    decisions: Sequence[str | Path],
    options: ListOptions,
) -> Comparison | RunComparison:
    """Analyse a folder of runs, or compare several runs with each other."""
    if len(folders) == 1:
        return analyse_runs(folders[0], baseline, decisions, options)
    if baseline is not None:
        raise SettingError("--baseline: several runs are compared with the first; leave it out")
    return compare_runs(folders, decisions, options)


def render(comparison: Comparison, folder: Path) -> str:
    """Render the page of a folder of runs, for ``folder``; the same runs give the same text."""
    return _page(
        [run for group in comparison.groups for run in group.runs],
        title=_title(comparison),
        sentences=comparison.sentences,
        shared=format_settings(comparison.shared),
        baseline=comparison.baseline,
        left_out=comparison.left_out,
        ranks=ranks_table(comparison),
        base_models=list(map(base_models_table, comparison.base_models)),
        corrected=comparison.corrected,
        corrected_table=comparison.corrected and corrected_table(comparison.corrected),
        sections=[_section(comparison, table, folder) for table in comparison.final_tables()],
    )


def render_runs(comparison: RunComparison) -> str:
    """Render the page that compares runs with each other."""
    first, *others = comparison.rows
    tests = [(row.name, row.difference) for row in others if row.difference is not None]
    rows = [(name, 100 * test.difference, test, points(test.difference)) for name, test in tests]
    picture = forest(
        f"difference from {first.name}, with its 95% interval",
        f"points of {PRIMARY}",
        [(first.name, 0, None, "0"), *rows],
        0,
    )
    section: dict[str, Any] = {
        **{"name": "Runs", "conclusion": "", "title": comparison.tested, "pictures": [picture]},
        **{
            "tables": [runs_table(comparison)],
            "examples": {},
            "searches": None,
            "show": "",
            "other_steps": {},
            "cutoffs": None,
        },
        **dict.fromkeys(("bullets", "labels", "sampling", "guard", "warnings"), ()),
    }
    return _page(
        [row.run for row in comparison.rows],
        title=", ".join(row.name for row in comparison.rows),
        sentences=comparison.sentences,
        sections=[section],
        **dict.fromkeys(("baseline", "shared", "ranks", "corrected", "corrected_table")),
        **dict.fromkeys(("left_out", "base_models"), ()),
    )


def _page(runs: Sequence[Run], **values: Any) -> str:
    """Render the template. The versions are those of the first run."""
    environment = Environment(
        loader=PackageLoader("opera.experiments", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    layout = (resources("opera.experiments") / "assets" / "page.css").read_text(encoding="utf-8")
    record = runs[0].record
    models = dict.fromkeys(run.record.model.source for run in runs)
    return environment.get_template("page.html").render(
        models=[short_name(model) for model in models],
        runs=len(runs),
        versions=record.versions,
        device=record.device,
        **values,
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
