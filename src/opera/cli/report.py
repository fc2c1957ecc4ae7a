"""``opera report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="a grid, a run, or any folder of runs", metavar="GRID|RUN")],
    out: Annotated[Path | None, typer.Option("--out", help="file to write; default report.html in the folder")] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="the method to test against; default ft, else the first")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="where the data set is now, if it has moved since the runs")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="print the analysis as JSON, and write no page")] = False,
) -> None:
    """Write one HTML page on a grid or a run: verdict, tables, curves, sampling, and every test query."""
    from opera.experiments.analysis import analyse_runs
    from opera.experiments.report import report as write_report

    if json_:
        print(json.dumps(analyse_runs(folder, baseline).as_dict(), indent=2))
        return
    path = write_report(folder, out, baseline=baseline, data=data)
    print(f"{path}: open it in a browser (self-contained)")
