"""What ``opera export`` prints: a table of the forms, and the verdict on each."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from opera.cli.printing.console import table_of
from opera.cli.printing.results import warn_of_few
from opera.deployment.record import HEADS, Export, table_rows, verdict_sentence


def print_export(screen: Console, exported: Export) -> None:
    """Print what each form costs and gains beside the model as trained, then how to load it."""
    if exported.queries:
        title = (
            f"{exported.model} on {exported.data}, {exported.queries:,} test queries; "
            f"speed on {exported.processor}"
        )
        screen.print(Text(title, style="bold"))
    screen.print(table_of(HEADS, table_rows(exported), words=2))
    for form in exported.forms:
        screen.print(Text(f"{form.form}: {verdict_sentence(form)}"))
    if exported.queries:
        warn_of_few(screen, exported.queries)
    screen.print(Text(f"\nwritten to {exported.folder}; what was measured is in its export.json"))
