"""The output of ``opera quickstart``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from opera.cli.printing.console import one_line
from opera.cli.printing.results import (
    format_rates,
    how_to_load,
    print_before_after,
    print_document,
    print_guard,
)
from opera.core.rng import generator
from opera.data import RetrievalData, load_data
from opera.runs.folder import Run

SHOWN_SEARCHES, SHOWN_DOCUMENTS = 3, 3


def print_quickstart(console: Console, run: Run) -> None:
    """Print three searches before and after, the measures, where the model is, and what to do
    next.
    """
    data = load_data(run.record.data.source)
    console.print(
        "\nThree held-out queries, drawn at random from those whose best documents changed:",
        style="bold",
    )
    for row in _queries_to_show(run):
        _print_query(console, run, data, row)
    counts = data.counts()
    settings = run.settings
    title = (
        f"{counts['test_queries']} held-out queries, {counts['documents']:,} chunks, {run.steps} "
        "steps of "
        f"{settings['method']}, {format_rates(settings)}"
    )
    console.print()
    if run.record.guard is not None:
        print_guard(console, run.record.guard)
    print_before_after(console, run, title)
    console.print(f"\nThe model: {run.model_path}", style="bold")
    console.print(Text(how_to_load(str(run.model_path))))
    opera = sys.argv[0] if Path(sys.argv[0]).name == "opera" else "opera"
    console.print("\nNext:", style="bold")
    console.print(Text(f'  {opera} search {data.source} "parse a date string" --model {run.path}'))
    console.print(
        Text(
            f"  {opera} train {data.source} --model minilm --method sp "
            f"--out {run.path.parent / 'sp'}"
        )
    )
    console.print(Text(f"  {opera} train python:YOUR_PACKAGE --model minilm --out yours"))


def _queries_to_show(run: Run) -> list[int]:
    """Draw rows by seed among the queries whose best documents changed, better or worse."""
    table = run.per_query()
    before, after = (table[f"{when} documents"].to_pylist() for when in ("before", "after"))
    changed = [
        row
        for row in range(table.num_rows)
        if before[row][:SHOWN_DOCUMENTS] != after[row][:SHOWN_DOCUMENTS]
    ]
    order = generator(run.settings["seed"], "quickstart.shown").permutation(len(changed))[
        :SHOWN_SEARCHES
    ]
    return [changed[at] for at in np.sort(order)]


def _print_query(console: Console, run: Run, data: RetrievalData, row: int) -> None:
    """Print a query and its best documents before and after, the relevant ones marked with ✓."""
    values = run.per_query().slice(row, 1).to_pylist()[0]
    query_row = data.queries.find_rows([values["query_id"]])
    console.print(Text(f"\n“{data.queries.texts(query_row)[0]}”", style="bold"))
    for when in ("before", "after"):
        console.print(Text(f"{when} (✓ belongs to the object)", style="bold"))
        ids = values[f"{when} documents"][:SHOWN_DOCUMENTS]
        texts = data.corpus.texts(data.corpus.find_rows(ids), "text")
        for rank, (identifier, text) in enumerate(zip(ids, texts, strict=True), start=1):
            mark = "✓" if identifier in values["relevant"] else " "
            print_document(console, f"{mark} {rank}.  {one_line(identifier)}", text)
