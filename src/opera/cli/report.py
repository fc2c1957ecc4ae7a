"""``opera report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import OverwriteOption, parser_of, path_option
from opera.core.paths import user_path
from opera.core.terminal import json_text, place, say


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="a grid, a run, or any folder of runs",
            metavar="GRID|RUN",
            parser=parser_of(user_path, "GRID|RUN"),
        ),
    ],
    out: Annotated[
        Path | None, path_option("--out", "file to write; default report.html in the folder")
    ] = None,
    overwrite: OverwriteOption = False,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="the method to test against; default ft, else the first"),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="print the analysis as JSON, and write no page")
    ] = False,
) -> None:
    """Write one HTML page on a grid or a run: verdict, tables with tests, what was drawn."""
    from opera.experiments.analysis import analyse_runs
    from opera.experiments.report import report as write_report

    if json_:
        say(json_text(analyse_runs(folder, baseline).as_dict()))
        return
    path = write_report(folder, out, baseline=baseline, overwrite=overwrite)
    say(f"{place(path)}: open it in a browser (self-contained)")
