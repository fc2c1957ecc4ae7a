"""``opera paper``: the paper's figures, and a grid of runs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import JsonOption, path_option
from opera.core.arguments import MOST
from opera.core.errors import SettingError
from opera.core.terminal import json_text, say


def paper(
    table: Annotated[
        str | None,
        typer.Option("--table", help="which table; omit to list them", show_default=False),
    ] = None,
    grid: Annotated[
        Path | None,
        path_option("--grid", "folder of finished runs to set beside it", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="only this data set, such as fiqa", show_default=False),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            help="runs with this many steps; default: the most on each data set",
            min=1,
            max=MOST,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="only runs with this setting, as key=value; repeatable",
            show_default=False,
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """The paper's tables, alone or beside a grid of your runs on the same measures."""
    from rich.text import Text

    from opera.cli.printing.console import console
    from opera.cli.printing.paper import print_paper_table, print_table_list
    from opera.experiments.paper.align import align_table, as_records
    from opera.experiments.paper.matching import GridRuns, with_grid_names, with_settings
    from opera.experiments.paper.tables import TABLES, find_table

    if table is None:
        if grid or data or steps or set_:
            raise SettingError(
                "needs --table: which of the paper's tables (opera paper lists them)"
            )
        if json_:
            say(json_text([{"table": t.name, "number": t.number, "what": t.what} for t in TABLES]))
        else:
            print_table_list(console())
        return
    chosen = find_table(table)
    if grid is None:
        if steps or set_:
            raise SettingError("--steps and --set pick runs of a grid: give --grid FOLDER too")
        rows, models, notes = align_table(chosen, None, data), None, []
    else:
        from opera.config.yaml import parse_assignments
        from opera.experiments.analysis import find_groups
        from opera.experiments.paper.reproduce import grid_notes

        groups = with_settings(
            with_grid_names(find_groups(grid), grid), parse_assignments(set_ or [])
        )
        rows = align_table(chosen, groups, data, steps)
        shown = {compared.row.data for compared in rows}
        models, notes = (
            GridRuns(groups, chosen).models(list(shown)),
            grid_notes(grid, groups, shown),
        )
    if json_:
        say(json_text(as_records(chosen, rows, grid is not None)))
    else:
        screen = console()
        print_paper_table(screen, chosen, rows, models)
        for note in notes:
            screen.print(Text(note))
