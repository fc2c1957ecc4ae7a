"""What ``opera export`` prints: a table of the forms, and the verdict on each."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.results import interval_in_points, warn_of_few
from opera.core.intervals import points
from opera.deployment.record import MEASURE, Export, verdict_sentence


def print_export(screen: Console, exported: Export) -> None:
    """Print what each form costs and gains beside the model as trained, then how to load it."""
    table = Table("form", "file")
    for column in (MEASURE, "points", "95% interval", "speed", "MB"):
        table.add_column(column, justify="right")
    measured = [form.figures for form in exported.forms if form.figures is not None]
    before = f"{measured[0].before:.4f}" if measured else ""
    table.add_row("as trained", "", before, "", "", "1.0×" if measured else "", f"{exported.megabytes:.1f}")
    for form in exported.forms:
        found = form.figures
        figures = ("", "", "", "")
        if found is not None:
            interval = interval_in_points(found.low, found.high)
            figures = (f"{found.after:.4f}", points(found.difference), interval, f"{found.speed:.1f}×")
        table.add_row(form.form, form.file, *figures, f"{form.megabytes:.1f}")
    if measured:
        title = f"{exported.model} on {exported.data}, {exported.queries:,} test queries; speed on {exported.processor}"
        screen.print(Text(title, style="bold"))
    screen.print(table)
    for form in exported.forms:
        screen.print(Text(f"{form.form}: {verdict_sentence(form)}"))
    if measured:
        warn_of_few(screen, exported.queries)
    screen.print(Text(f"\nwritten to {exported.folder}; what was measured is in its export.json"))
