"""Assembles a report in one file: template, styles, scripts, the chart library and the data."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opera.core.arguments import flag, text
from opera.core.errors import SettingError
from opera.core.extras import require
from opera.core.files import check_folder, check_output, replace_file
from opera.core.intervals import points
from opera.core.paths import expand_user, user_path
from opera.core.terminal import place as place_of
from opera.data import check_stays_out, files_read
from opera.experiments.analysis import (
    BUCKETS,
    PAPERS,
    PRIMARY,
    RECALL,
    UNTRAINED,
    Comparison,
    analyse_runs,
    format_settings,
    short_name,
)
from opera.experiments.analysis.guard import format_verdicts
from opera.experiments.analysis.significance import LEVEL
from opera.experiments.analysis.verdict import verdict
from opera.experiments.report.document import collect_document
from opera.experiments.report.guard import guard_chart
from opera.experiments.report.table_files import table_files, table_name
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.guard_words import dev_sentence

MARK, MARK_WITHIN = b'<meta name="generator" content="OPERA report">', 1000
"""What a report has among its first bytes, by which a later one knows that it may take its place."""
SCRIPTS = ("core.js", "tables.js", "charts.js", "sampling.js", "explorer.js", "start.js")
MAX_TITLED = 8
"""Above this number methods are counted in the title, not named."""


def report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
    data: str | Path | None = None,
    overwrite: bool = False,
    tables: str | Path | None = None,
    charts: str | Path | None = None,
) -> Path:
    """Write one HTML file on a grid, a run or any folder of runs. It opens from disk and loads nothing else.

    Args:
        folder: the folder to report on.
        out: the file to write; ``None`` writes ``report.html`` in the folder, over an earlier report.
        baseline: label of the method that the others are tested against; ``None`` takes ``ft`` if there is one, else
            the first.
        data: where the data set is now, for the explorer's texts; ``None`` takes the path that the runs recorded.
        overwrite: replace ``out`` if it exists, and files of tables and charts; never a file that the report reads.
        tables: folder for the page's tables, each as ``.csv`` and as ``.tex`` (LaTeX, booktabs).
        charts: folder for its charts, each as ``.svg`` and as ``.png``.

    Returns:
        Path of the file.

    Raises:
        MissingExtraError: if plotly is not installed.
        RunFolderError: if the folder holds no finished run.
        SettingError: if the baseline is unknown, the file is not .html, or ``data`` is given for several data sets.
    """
    require("plotly", "opera report")
    if charts is not None:
        require("matplotlib", "--charts")
    places = {name: user_path(place, name) for name, place in (("tables", tables), ("charts", charts)) if place}
    for name, place in places.items():
        check_folder(place, f"--{name}")
    folder, overwrite = user_path(folder, "folder"), flag(overwrite, "overwrite")
    baseline = None if baseline is None else text(baseline, "baseline")
    path = folder / "report.html" if out is None else user_path(out, "out")
    data = None if data is None else expand_user(data, "data")
    if folder.is_dir():
        if out is None and path.is_file() and not is_report(path):
            raise SettingError(f"{path}: exists and is no report that opera wrote; pass --out with another file")
        reads = [folder, *([] if data is None else files_read(data))]
        free = overwrite or out is None
        check_output(
            path, "--out", (".html",), overwrite=overwrite, reads=reads, ours=lambda file: free and is_report(file)
        )
    comparison = analyse_runs(folder, baseline)
    names = sorted({table.name for table in comparison.tables})
    if data is not None and len(names) > 1:
        raise SettingError(f"--data: {folder} has runs on several data sets, {', '.join(names)}; report on one of them")
    writes = _files(comparison, places)
    for name, file in (("out", path), *writes):
        if data is not None:
            check_stays_out(file, f"--{name}", data, folder=False)
    for name, file in writes:
        if os.path.lexists(file) and not overwrite:
            raise SettingError(f"--{name} {place_of(file)}: exists; pass --overwrite to replace it, or another folder")
    page = render(comparison, data)
    for (_, file), write in writes.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file)
    replace_file(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return path


def _files(comparison: Comparison, places: Mapping[str, Path]) -> dict[tuple[str, Path], Callable[[Path], None]]:
    """Return the files of tables and charts by option and path, and what writes each."""
    files: dict[tuple[str, Path], Callable[[Path], None]] = {}
    if "tables" in places:
        for table in table_files(comparison):
            for suffix, text in ((".csv", table.csv()), (".tex", table.latex())):
                files["tables", places["tables"] / f"{table.name}{suffix}"] = partial(_write_text, text)
    if "charts" in places:
        from opera.core.figures import write_figure  # of an extra
        from opera.experiments.report.chart_files import chart_files

        for name, figure in chart_files(comparison, collect_document(comparison)):
            for suffix in (".svg", ".png"):
                files["charts", places["charts"] / f"{name}{suffix}"] = partial(write_figure, figure=figure)
    return files


def _write_text(text: str, path: Path) -> None:
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def is_report(path: Path) -> bool:
    """Whether a file is a report that OPERA wrote."""
    with path.open("rb") as file:
        return MARK in file.read(MARK_WITHIN)


def render(comparison: Comparison, data: str | None = None) -> str:
    """Render the page; the same runs give the same text. Arguments as for :func:`collect_document`."""
    from plotly.offline import get_plotlyjs  # of an extra

    environment = Environment(
        loader=PackageLoader("opera.experiments.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        points=points,
        p_value=_format_p,
        share=_format_share,
        duration=_format_seconds,
        verdicts=format_verdicts,
        dev_sentence=lambda result: dev_sentence(result.typical),
    )
    assets = files("opera.experiments.report") / "assets"
    document = collect_document(comparison, data)
    document["tables"] = {table.name: {"csv": table.csv(), "tex": table.latex()} for table in table_files(comparison)}
    library = get_plotlyjs()
    script = "\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    text = environment.get_template("page.html").render(
        title=_title(comparison),
        models=[short_name(model) for model in comparison.models],
        verdicts=verdict(comparison),
        shared=format_settings(comparison.shared),
        versions=comparison.groups[0].runs[0].record.versions,
        device=comparison.groups[0].runs[0].record.device,
        untrained=UNTRAINED,
        comparison=comparison,
        table_name=table_name,
        document=document,
        sections=[_section(comparison, part["source"]) for part in document["data"]],
        measures=DEFAULT_MEASURES,
        primary=PRIMARY,
        papers=PAPERS,
        recall=RECALL,
        level=LEVEL,
        buckets=BUCKETS,
        style=Markup((assets / "page.css").read_text(encoding="utf-8")),
        library=Markup(library),
        script=Markup(script),
        allowed=[Markup(_script_hash(text)) for text in (library, script)],
        data=_embed_json(document),
    )
    return str(text)


def _title(comparison: Comparison) -> str:
    names = dict.fromkeys(table.name for table in comparison.tables)
    labels = dict.fromkeys(group.method for group in comparison.groups)
    methods = ", ".join(labels) if len(labels) <= MAX_TITLED else f"{len(labels)} methods"
    return f"{methods} on {', '.join(names)}"


def _section(comparison: Comparison, data: str) -> dict[str, Any]:
    """What the template lists for one data set: its tables, the one with the most steps first, and more on them."""
    tables = sorted((table for table in comparison.tables if table.data == data), key=lambda table: -table.steps)
    convergence = [convergence for convergence in comparison.convergence if convergence.data == data]
    noisy = any(row.coverage.noise_draws is not None for table in tables for row in table.rows)
    guards = [row.guard for row in tables[0].rows if row.guard is not None]
    return {
        "name": tables[0].name,
        "tables": tables,
        "convergence": convergence,
        "noisy": noisy,
        "guards": guards,
        "guard_chart": guard_chart(tables[0]),
    }


def _script_hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows a script, and no other."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _embed_json(document: dict[str, Any]) -> Markup:
    """JSON that cannot end its script element, whatever texts it holds."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _format_p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def _format_share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.1 or value == 0 else f"{100 * value:.1f}%"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
