"""What ``opera paper`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import one_line
from opera.experiments.paper.beside import Cell, Line
from opera.experiments.paper.matching import our_measure
from opera.experiments.paper.tables import TABLES, PaperTable

UNKNOWN = "–"
WIDEST = 21
ALONE, COMPARED, FEW = 9, 2, 4
"""How many measures stand side by side: the paper's figures alone, and with those of a grid."""


def print_tables(screen: Console) -> None:
    """Print the list of the tables."""
    listing = Table("--table", "in the paper", "what it has")
    for table in TABLES:
        listing.add_row(table.name, table.number, table.what)
    screen.print(listing)


def print_comparison(screen: Console, table: PaperTable, lines: Sequence[Line], models: Sequence[str] | None) -> None:
    """Print a table of the paper, with the grid's side where ``models``, what its runs began from, are given."""
    screen.print(Text(f"{table.number}: {table.what}", style="bold"))
    compared = models is not None
    if models is not None:
        ours = one_line(", ".join(models)) or "no run on these data sets"
        screen.print(Text(f"the paper: {table.model}; the grid: {ours}"))
    else:
        screen.print(Text(f"the paper: {table.model}"))
    measures = list(dict.fromkeys(name for line in lines for name in line.cells))
    for shown in _side_by_side(measures, COMPARED if compared else ALONE):
        screen.print(_table(lines, shown, compared))
    for note in _notes(table, lines, compared, measures):
        screen.print(Text(note))


def _side_by_side(measures: Sequence[str], most: int) -> list[list[str]]:
    """Cut measures into what fits beside each other: many by family (NDCG, Recall, ...), a few as they come."""
    families: dict[str, list[str]] = {}
    for name in measures:
        families.setdefault(name.partition("@")[0] if len(measures) > max(most, FEW) else "", []).append(name)
    return [family[at : at + most] for family in families.values() for at in range(0, len(family), most)]


def _table(lines: Sequence[Line], measures: Sequence[str], compared: bool) -> Table:
    heads = ["data", "queries", "method", "steps", "grid's\nsteps"]
    columns = [[_of_row(line)[at] for line in lines] for at in range(len(heads))]
    used = [at for at, column in enumerate(columns) if any(column)]
    table = Table()
    for at in used:
        widest = min(WIDEST, max(map(len, columns[at])))
        table.add_column(heads[at], justify="right" if at > 2 else "left", min_width=widest)
    for name in measures:
        head = f"{name}\npaper" if compared else name.replace("@", "\n@")
        table.add_column(head, justify="right")
        if compared:
            table.add_column("\ngrid", justify="right")
            table.add_column("\npoints" if our_measure(name) else "\ndifference", justify="right")
    for before, line in zip([None, *lines], lines, strict=False):
        again = before is not None and before.row.data == line.row.data
        if before is not None and not again:
            table.add_section()
        cells = [_of_row(line)[at] for at in used]
        cells[0] = "" if again else cells[0]
        for name in measures:
            cell = line.cells.get(name)
            cells += (_compared(cell, name) if compared else [_number(cell.paper, name)]) if cell else []
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _of_row(line: Line) -> list[str]:
    row = line.row
    steps = "" if row.steps is None else f"{row.steps:,}"
    ours = "" if line.steps is None or line.steps == row.steps else f"{line.steps:,}"
    return [row.data, row.part, row.method, steps, ours]


def _compared(cell: Cell, name: str) -> list[str]:
    if cell.mean is None:
        return [_number(cell.paper, name), cell.absent, ""]
    spread = "" if cell.sd is None else f" ± {_number(cell.sd, name)}"
    difference = "" if cell.difference is None else f"{cell.difference:+.1f}"
    if cell.difference is not None and cell.scale == 1:
        difference = f"{cell.difference:+.2f}"
    return [_number(cell.paper, name), f"{_number(cell.mean, name)}{spread}", difference]


def _number(value: float | None, name: str) -> str:
    if value is None:
        return UNKNOWN
    if name == "queries":
        return f"{value:g}"
    return f"{value:.3f}" if our_measure(name) and abs(value) < 1 else f"{value:.2f}"


def _notes(table: PaperTable, lines: Sequence[Line], compared: bool, measures: Sequence[str]) -> list[str]:
    notes = list(table.notes)
    if not compared:
        return notes
    names = ", ".join(f"{name} is {our_measure(name)}" for name in measures if our_measure(name))
    notes.insert(0, f"On the same measure: {names}." if len(measures) < 5 else
                 "On the same measures: NDCG is retrieved_ideal_nDCG, Recall R, MRR RR.")  # fmt: skip
    notes.insert(1, "The grid: mean ± standard deviation over its seeds. The paper has one run a figure, no variance.")
    kinds = dict.fromkeys(fits for line in lines if (fits := line.fits))
    notes += [f"Which to take? {one_line('; '.join(fits))}: --set picks runs by a setting." for fits in kinds]
    return notes
