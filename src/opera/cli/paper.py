"""``opera paper``: the paper's figures."""

from __future__ import annotations

from typing import Annotated

import typer

from opera.cli.options import JsonOption
from opera.core.errors import SettingError
from opera.core.terminal import json_text, say


def paper(
    table: Annotated[
        str | None,
        typer.Option("--table", help="which table; omit to list them", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="only this data set, such as fiqa", show_default=False),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """The paper's tables. opera reproduce sets your runs beside them."""
    from opera.cli.printing.console import console
    from opera.cli.printing.paper import print_paper_table, print_table_list
    from opera.experiments.paper.align import as_records, paper_alone, rows_of
    from opera.experiments.paper.tables import TABLES, find_table

    if table is None:
        if data:
            raise SettingError(
                "needs --table: which of the paper's tables (opera paper lists them)"
            )
        if json_:
            say(json_text([{"table": t.name, "number": t.number, "what": t.what} for t in TABLES]))
        else:
            print_table_list(console())
        return
    chosen = find_table(table)
    rows = paper_alone(rows_of(chosen, data))
    if json_:
        say(json_text(as_records(chosen, rows, with_grid=False)))
    else:
        print_paper_table(console(), chosen, rows, None)
