"""``opera paper``: the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import Answer
from opera.cli.screen import Screen, flat
from opera.core.errors import SettingError
from opera.core.intervals import signed

if TYPE_CHECKING:
    from opera.experiments.paper.align import ComparedFigure, ComparedRow
    from opera.experiments.paper.tables import PaperTable


HEADS = ("data", "queries", "method", "steps", "grid's\nsteps")
WORDS = 3
WIDEST = 21
AT_ONCE, AT_ONCE_WITH_GRID = 9, 2
"""How many measures fit side by side: the paper's alone, and with a grid's."""


def paper(
    table: Annotated[
        str | None,
        typer.Option("--table", help="which table; omit to list them", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="only this data set, such as fiqa", show_default=False),
    ] = None,
) -> Answer:
    """The paper's tables. opera reproduce sets your runs beside them."""
    from opera.experiments.paper.align import as_records, paper_alone, rows_of
    from opera.experiments.paper.tables import TABLES, find_table

    if table is None:
        if data:
            raise SettingError(
                "needs --table: which of the paper's tables (opera paper lists them)"
            )
        listing = [(each.name, each.number, each.what) for each in TABLES]
        heads = ("--table", "in the paper", "contents")
        return Answer(
            lambda: [dict(zip(("table", "number", "what"), row, strict=True)) for row in listing],
            lambda screen: screen.table(heads, listing, words=3),
        )
    chosen = find_table(table)
    rows = paper_alone(rows_of(chosen, data))
    return Answer(
        lambda: as_records(chosen, rows, with_grid=False),
        lambda screen: print_paper_table(screen, chosen, rows, None),
    )


def print_paper_table(
    screen: Screen,
    table: PaperTable,
    rows: Sequence[ComparedRow],
    models: Sequence[str] | None,
    notes: Sequence[str] = (),
) -> None:
    """Print a table of the paper, with the grid's side if its runs' ``models`` are given."""
    with_grid, ours = models is not None, flat(", ".join(models or ()))
    beside = f"; the grid: {ours or 'no run on these data sets'}" if with_grid else ""
    screen.heading(f"{table.number}: {table.what}")
    screen.lines(f"the paper: {table.model}{beside}")
    measures = list(dict.fromkeys(name for compared in rows for name in compared.figures))
    most = AT_ONCE_WITH_GRID if with_grid else AT_ONCE
    for at in range(0, len(measures), most):
        _print_block(screen, rows, measures[at : at + most], with_grid)
    screen.lines(*_notes(table, rows, with_grid, measures), *notes)


def _print_block(
    screen: Screen, rows: Sequence[ComparedRow], measures: Sequence[str], with_grid: bool
) -> None:
    from opera.experiments.paper.tables import our_measure

    labels = [_labels(compared) for compared in rows]
    used = [at for at in range(len(HEADS)) if any(label[at] for label in labels)]
    heads = [HEADS[at] for at in used]
    for name in measures:
        if with_grid:
            unit = "points" if our_measure(name) else "difference"
            heads += [f"{name}\npaper", "\ngrid", f"\n{unit}"]
        else:
            heads.append(name.replace("@", "\n@"))
    lines: list[list[str] | None] = []
    previous = None
    for compared, label in zip(rows, labels, strict=True):
        same, previous = compared.row.data == previous, compared.row.data
        if lines and not same:
            lines.append(None)
        cells = ["" if same and at == 0 else label[at] for at in used]
        for name in measures:
            if figure := compared.figures.get(name):
                cells += _figures(figure, name)[: 3 if with_grid else 1]
        lines.append(cells)
    least = [min(WIDEST, max(len(label[at]) for label in labels)) for at in used]
    screen.table(heads, lines, words=sum(at < WORDS for at in used), least=least)


def _labels(compared: ComparedRow) -> list[str]:
    """A row's cells under :data:`HEADS`; the grid's steps where they are others."""
    row = compared.row
    other = None if compared.steps == row.steps else compared.steps
    steps = ("" if count is None else f"{count:,}" for count in (row.steps, other))
    return [row.data, row.part, row.method, *steps]


def _figures(figure: ComparedFigure, name: str) -> list[str]:
    """The paper's figure, the grid's and their difference."""
    ours, difference = figure.missing, ""
    if figure.mean is not None:
        sd = "" if figure.sd is None else f" ± {_number(figure.sd, name)}"
        ours = f"{_number(figure.mean, name)}{sd}"
    if figure.difference is not None:
        difference = signed(figure.difference, 2 if figure.scale == 1 else 1)
    return [_number(figure.paper, name), ours, difference]


def _number(value: float | None, name: str) -> str:
    from opera.experiments.paper.tables import our_measure

    if value is None:
        return "–"
    share = our_measure(name) and abs(value) < 1
    return f"{value:g}" if name == "queries" else f"{value:.{3 if share else 2}f}"


def _notes(
    table: PaperTable, rows: Sequence[ComparedRow], with_grid: bool, measures: Sequence[str]
) -> list[str]:
    from opera.experiments.paper.tables import our_measure

    sets = {compared.row.data for compared in rows}
    own = [*(note for data, note in table.data_notes.items() if data in sets), *table.notes]
    if not with_grid:
        return own
    names = ", ".join(f"{name} is {our_measure(name)}" for name in measures if our_measure(name))
    return [
        f"On the same measure: {names}."
        if len(measures) < 5
        else "On the same measures: NDCG is retrieved_ideal_nDCG, Recall R, MRR RR.",
        "The grid: mean ± standard deviation over its seeds. The paper has one run per figure and "
        "no variance.",
        *own,
    ]
