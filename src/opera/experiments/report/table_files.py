"""The report's tables as CSV, with all digits, and as LaTeX with the rules of booktabs."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opera.core.terminal import printable
from opera.experiments.analysis import BUCKETS, PRIMARY, RECALL, UNTRAINED, Comparison
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.analysis.results import MethodResult, ResultsTable
from opera.retrieval.measures import DEFAULT_MEASURES

Cell = str | int | float | MeanStd | None

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@dataclass(frozen=True)
class TableFile:
    """One table of the report.

    Attributes:
        name: its file's name without a suffix.
        caption: what it shows.
        columns: headings.
        rows: a cell per column; ``None`` where there is no value.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def csv(self) -> str:
        """All digits; a mean over seeds and its standard deviation are two columns."""
        spread = [any(isinstance(row[at], MeanStd) for row in self.rows) for at in range(len(self.columns))]
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(
            _harmless(part)
            for name, two in zip(self.columns, spread, strict=True)
            for part in ([name, f"{name} std"] if two else [name])
        )
        for row in self.rows:
            lines.writerow(
                _harmless(part)
                for cell, two in zip(row, spread, strict=True)
                for part in ([cell.mean, cell.std] if isinstance(cell, MeanStd) else [cell, None] if two else [cell])
            )
        return text.getvalue()

    def latex(self) -> str:
        """A ``table`` with a ``tabular``; needs the package booktabs."""
        lines = [
            r"\begin{table}",
            rf"\caption{{{_escaped(self.caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            r"\toprule",
            _latex_row(self.columns),
            r"\midrule",
            *(_latex_row(row) for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def table_name(kind: str, comparison: Comparison, table: ResultsTable | None = None) -> str:
    """Return the name of a table's file: the data set, with its number where there are several, what, and the steps."""
    if table is None:
        return kind
    sources = list(dict.fromkeys(other.data for other in comparison.tables))
    number = f"{sources.index(table.data) + 1}-" if len(sources) > 1 else ""
    data = re.sub(r"[^A-Za-z0-9.]+", "-", table.name).strip("-.")[:60] or "data"
    return f"{number}{data}-{kind}-{table.steps}"


def table_files(comparison: Comparison) -> list[TableFile]:
    """Return every table of the report."""
    found = [] if not comparison.ranks else [_ranks(comparison)]
    for table in comparison.tables:
        found += [_quality(comparison, table), _cost(comparison, table)]
        if any(row.guard is not None for row in table.rows):
            found.append(_guard(comparison, table))
    for final in comparison.final_tables():
        if any(row.difficulty for row in final.rows):
            found.append(_difficulty(comparison, final))
    return found


def _quality(comparison: Comparison, table: ResultsTable) -> TableFile:
    against = comparison.baseline
    tests = ("points", "low", "high", "p", "won", "lost") if against is not None else ()

    def row(result: MethodResult) -> Iterator[Cell]:
        yield from (result.method, len(result.seeds))
        yield from (result.measures[measure] for measure in DEFAULT_MEASURES)
        test = result.tests.get(PRIMARY)
        if tests and test is not None:
            yield from (100 * test.difference, 100 * test.low, 100 * test.high)
            yield from (test.t_test_holm, test.won, test.lost)
        else:
            yield from (None for _ in tests)

    untrained = (UNTRAINED, None, *(table.untrained[measure] for measure in DEFAULT_MEASURES), *(None for _ in tests))
    caption = f"{table.name}: quality after {table.steps} steps, {table.queries} test queries"
    if against is not None:
        caption += f"; points of {PRIMARY} against {against} with 95% intervals, both corrected by Holm"
    return TableFile(
        table_name("quality", comparison, table),
        caption,
        ("method", "seeds", *DEFAULT_MEASURES, *tests),
        (untrained, *(tuple(row(result)) for result in table.rows)),
    )


def _cost(comparison: Comparison, table: ResultsTable) -> TableFile:
    columns = ("method", "queries drawn", "effective queries", "pairs drawn", "effective pairs", "false draws")
    rows = tuple(
        (
            row.method,
            row.coverage.queries,
            row.coverage.effective_queries,
            row.coverage.pairs,
            row.coverage.effective_pairs,
            row.coverage.noise_draws,
            1000 * row.seconds_per_step,
            row.training_seconds,
        )
        for row in table.rows
    )
    caption = f"{table.name}: training data drawn and time taken, {table.steps} steps"
    return TableFile(
        table_name("cost", comparison, table), caption, (*columns, "ms per step", "seconds of training"), rows
    )


def _guard(comparison: Comparison, table: ResultsTable) -> TableFile:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            row.method,
            " ".join(f"{share:g}" for share in row.guard.shares),
            " ".join(row.guard.verdicts),
            *(
                value
                for measure in (PRIMARY, RECALL)
                for value in (row.guard.fine_tuned[measure], row.measures[measure])
            ),
            row.guard.typical.dev_queries,
        )
        for row in table.rows
        if row.guard is not None
    )
    both = [f"{measure} {what}" for measure in (PRIMARY, RECALL) for what in ("fine-tuned", "handed over")]
    return TableFile(
        table_name("guard", comparison, table),
        f"{table.name}: what the guard handed over, {table.steps} steps",
        ("method", "share by seed", "verdict by seed", *both, "dev queries"),
        rows,
    )


def _difficulty(comparison: Comparison, table: ResultsTable) -> TableFile:
    kinds = [(measure, bucket) for measure in (PRIMARY, RECALL) for bucket in BUCKETS]
    methods = {row.method: row.difficulty for row in table.rows if row.difficulty}
    values = {**({UNTRAINED: table.untrained_difficulty} if table.untrained_difficulty else {}), **methods}
    return TableFile(
        table_name("difficulty", comparison, table),
        f"{table.name}: thirds of the test queries by the pretrained model's similarity to their relevant documents",
        ("method", *(f"{measure} {bucket}" for measure, bucket in kinds)),
        tuple((label, *(found[measure][bucket] for measure, bucket in kinds)) for label, found in values.items()),
    )


def _ranks(comparison: Comparison) -> TableFile:
    labels = comparison.ranks[PRIMARY]
    return TableFile(
        table_name("ranks", comparison),
        "Average rank over the data sets, each with its largest number of steps; 1 is best",
        ("method", *comparison.ranks),
        tuple((label, *(ranks[label] for ranks in comparison.ranks.values())) for label in labels),
    )


def _latex_row(cells: Sequence[Cell]) -> str:
    return " & ".join(_latex_cell(cell) for cell in cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    if isinstance(cell, MeanStd):
        spread = "" if cell.std is None else rf" \pm {cell.std:.3f}"
        return f"${cell.mean:.3f}{spread}$"
    if isinstance(cell, float):
        return f"${cell:.3f}$" if abs(cell) < 100 else f"${cell:.0f}$"
    return "" if cell is None else _escaped(str(cell))


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in printable(text))


def _harmless(cell: Cell) -> Cell:
    """Keep a spreadsheet from taking a label of someone else's run for a formula."""
    if not isinstance(cell, str):
        return cell
    # spreadsheets take full-width signs for the plain ones, and pass over white space before them
    begins = unicodedata.normalize("NFKC", cell).lstrip()[:1]
    return f"'{printable(cell)}" if begins in tuple("=+-@") else printable(cell)
