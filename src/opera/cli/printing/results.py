"""Tables of one run or evaluation, and the documents of one search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import one_line
from opera.retrieval.measures import DEFAULT_MEASURES


def print_before_after(screen: Console, measures: Mapping[str, Mapping[str, float]], title: str) -> None:
    """Print the table of a run: the main measures before, after, and the difference in points."""
    table = Table()
    table.add_column("measure")
    for column in ("before", "after", "points"):
        table.add_column(column, justify="right")
    for name in DEFAULT_MEASURES:
        before, after = (measures[when][name] for when in ("before", "after"))
        table.add_row(name, f"{before:.4f}", f"{after:.4f}", f"{100 * (after - before):+.1f}")
    screen.print(Text(f"\n{title}", style="bold"))
    screen.print(table)


def print_measures(screen: Console, values: Mapping[str, float], title: str) -> None:
    """Print the table of one evaluation."""
    table = Table()
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in values.items():
        table.add_row(name, f"{value:.4f}")
    screen.print(Text(title, style="bold"))
    screen.print(table)


def print_found(
    screen: Console, found: Sequence[Mapping[str, Any]], title: str, relevant: frozenset[str] = frozenset()
) -> None:
    """Print the documents of one search, two lines each; those in ``relevant`` are marked with ✓."""
    screen.print(Text(title, style="bold"))
    for document in found:
        mark = "✓" if document["id"] in relevant else " "
        score = f"  {document['score']:.3f}" if "score" in document else ""
        screen.print(
            Text(f"{mark} {document['rank']}.{score}  {one_line(document['id'])}"), overflow="ellipsis", no_wrap=True
        )
        screen.print(
            Text(f"       {one_line(document['text'])}", style="dim"),
            overflow="ellipsis",
            no_wrap=True,
        )


def how_to_load(folder: str) -> str:
    """Return the three lines of Python that load a model."""
    return (
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({folder!r})\n"
        'vectors = model.encode_query(["your question"])'
    )
