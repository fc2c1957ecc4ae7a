"""The tables of ``opera paper`` and ``opera reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import SafeConsole, one_line
from opera.core.intervals import signed
from opera.experiments.paper.align import ComparedFigure, ComparedRow
from opera.experiments.paper.reproduce import Reproduced
from opera.experiments.paper.tables import TABLES, PaperTable, our_measure

UNKNOWN = "–"
FILE_WIDTH = 160
ROW_HEADS = ("data", "queries", "method", "steps", "grid's\nsteps")
MAX_WIDTH = 21
MEASURES_ALONE, MEASURES_WITH_GRID, MEASURES_UNGROUPED = 9, 2, 4
"""How many measures fit side by side: the paper's, with a grid's, at most ungrouped."""


def print_table_list(screen: Console) -> None:
    """Print the list of tables."""
    listing = Table("--table", "in the paper", "contents")
    for table in TABLES:
        listing.add_row(table.name, table.number, table.what)
    screen.print(listing)


def print_paper_table(
    screen: Console, table: PaperTable, rows: Sequence[ComparedRow], models: Sequence[str] | None
) -> None:
    """Print a table of the paper, with the grid's side if its runs' ``models`` are given."""
    screen.print(Text(f"{table.number}: {table.what}", style="bold"))
    with_grid = models is not None
    if models is not None:
        ours = one_line(", ".join(models)) or "no run on these data sets"
        screen.print(Text(f"the paper: {table.model}; the grid: {ours}"))
    else:
        screen.print(Text(f"the paper: {table.model}"))
    measures = list(dict.fromkeys(name for compared in rows for name in compared.figures))
    for block in _measure_blocks(measures, MEASURES_WITH_GRID if with_grid else MEASURES_ALONE):
        screen.print(_table(rows, block, with_grid))
    for note in _notes(table, rows, with_grid, measures):
        screen.print(Text(note))


def print_reproduced(screen: Console, reproduced: Reproduced) -> None:
    """Print the table of the paper beside ours."""
    plan = reproduced.plan
    print_paper_table(screen, plan.table, reproduced.rows, [Path(plan.model).name])
    for note in reproduced.notes:
        screen.print(Text(note))


def reproduced_text(reproduced: Reproduced) -> str:
    """The same as plain text, for a file."""
    screen = SafeConsole(file=StringIO(), width=FILE_WIDTH, record=True, color_system=None)
    print_reproduced(screen, reproduced)
    return screen.export_text()


def _measure_blocks(measures: Sequence[str], most: int) -> list[list[str]]:
    """Split measures into blocks that fit side by side: many by family, a few in their order."""
    by_family = len(measures) > max(most, MEASURES_UNGROUPED)
    families: dict[str, list[str]] = {}
    for name in measures:
        families.setdefault(name.partition("@")[0] if by_family else "", []).append(name)
    return [
        family[start : start + most]
        for family in families.values()
        for start in range(0, len(family), most)
    ]


def _table(rows: Sequence[ComparedRow], measures: Sequence[str], with_grid: bool) -> Table:
    labels = [_row_labels(compared) for compared in rows]
    used = [column for column in range(len(ROW_HEADS)) if any(row[column] for row in labels)]
    table = Table()
    for column in used:
        width = min(MAX_WIDTH, max(len(row[column]) for row in labels))
        table.add_column(
            ROW_HEADS[column], justify="right" if column > 2 else "left", min_width=width
        )
    for name in measures:
        _add_measure_columns(table, name, with_grid)
    previous = None
    for compared, label in zip(rows, labels, strict=True):
        cells = [label[column] for column in used]
        if compared.row.data == previous:
            cells[0] = ""
        elif previous is not None:
            table.add_section()
        previous = compared.row.data
        for name in measures:
            if figure := compared.figures.get(name):
                cells += (
                    _compared_cells(figure, name)
                    if with_grid
                    else [_format_number(figure.paper, name)]
                )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _add_measure_columns(table: Table, name: str, with_grid: bool) -> None:
    table.add_column(f"{name}\npaper" if with_grid else name.replace("@", "\n@"), justify="right")
    if with_grid:
        table.add_column("\ngrid", justify="right")
        table.add_column("\npoints" if our_measure(name) else "\ndifference", justify="right")


def _row_labels(compared: ComparedRow) -> list[str]:
    """A row's cells under :data:`ROW_HEADS`."""
    row = compared.row
    steps = "" if row.steps is None else f"{row.steps:,}"
    grid_steps = (
        "" if compared.steps is None or compared.steps == row.steps else f"{compared.steps:,}"
    )
    return [row.data, row.part, row.method, steps, grid_steps]


def _compared_cells(figure: ComparedFigure, name: str) -> list[str]:
    """The paper's figure, the grid's and their difference."""
    if figure.mean is None:
        return [_format_number(figure.paper, name), figure.missing, ""]
    sd = "" if figure.sd is None else f" ± {_format_number(figure.sd, name)}"
    digits = 2 if figure.scale == 1 else 1
    difference = "" if figure.difference is None else signed(figure.difference, digits)
    return [
        _format_number(figure.paper, name),
        f"{_format_number(figure.mean, name)}{sd}",
        difference,
    ]


def _format_number(value: float | None, name: str) -> str:
    if value is None:
        return UNKNOWN
    if name == "queries":
        return f"{value:g}"
    return f"{value:.3f}" if our_measure(name) and abs(value) < 1 else f"{value:.2f}"


def _notes(
    table: PaperTable, rows: Sequence[ComparedRow], with_grid: bool, measures: Sequence[str]
) -> list[str]:
    shown_sets = {compared.row.data for compared in rows}
    own = [*(note for data, note in table.data_notes.items() if data in shown_sets), *table.notes]
    if not with_grid:
        return own
    names = ", ".join(f"{name} is {our_measure(name)}" for name in measures if our_measure(name))
    return [
        f"On the same measure: {names}."
        if len(measures) < 5
        else "On the same measures: NDCG is retrieved_ideal_nDCG, Recall R, MRR RR.",
        "The grid: mean ± standard deviation over its seeds. The paper has one run per figure "
        "and no variance.",
        *own,
    ]
