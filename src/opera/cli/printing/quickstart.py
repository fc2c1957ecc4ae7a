"""What ``opera quickstart`` shows of its run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from opera.cli.printing.results import how_to_load, print_before_after, print_found
from opera.core.rng import generator
from opera.data import RetrievalData, load_data
from opera.runs.folder import Run

SHOWN_SEARCHES, SHOWN_DOCUMENTS = 3, 3


def show(run: Run, console: Console) -> None:
    """Print the figures, three searches before and after, where the model is and how to load it."""
    data = load_data(run.about["data"]["source"])
    console.print("\nThree held-out queries, drawn by seed among those whose best documents changed:", style="bold")
    for query in _queries_to_show(run):
        _show_search(run, data, query, console)
    counts = data.counts()
    settings = run.settings
    title = (
        f"{counts['test_queries']} held-out queries, {counts['documents']:,} chunks, {run.steps} steps of "
        f"{settings['method']}, mask_known_positives={str(settings['mask_known_positives']).lower()}"
    )
    print_before_after(console, run.measures, title)
    console.print(f"\nThe model: {run.model_path}", style="bold")
    console.print(Text(how_to_load(str(run.model_path))))
    opera = sys.argv[0] if Path(sys.argv[0]).name == "opera" else "opera"
    console.print("\nNext:", style="bold")
    console.print(Text(f'  {opera} search {run.path} {data.source} "parse a date string"'))
    console.print(Text(f"  {opera} train {data.source} --model minilm --method sp --out {run.path.parent / 'sp'}"))
    console.print(Text(f"  {opera} train python:YOUR_PACKAGE --model minilm --out yours"))


def _queries_to_show(run: Run) -> list[int]:
    """Draw queries by seed among those whose best documents changed, so that no side is favoured."""
    table = run.per_query()
    before, after = (table[f"{when} documents"].to_pylist() for when in ("before", "after"))
    changed = [at for at in range(table.num_rows) if before[at][:SHOWN_DOCUMENTS] != after[at][:SHOWN_DOCUMENTS]]
    order = generator(run.settings["seed"], "quickstart.shown").permutation(len(changed))[:SHOWN_SEARCHES]
    return [changed[at] for at in np.sort(order)]


def _show_search(run: Run, data: RetrievalData, at: int, console: Console) -> None:
    row = run.per_query().slice(at, 1).to_pylist()[0]
    query = int(data.queries.rows_of([row["query_id"]])[0])
    qrels = data.split("test").relevant()
    place = int(np.flatnonzero(qrels.query_rows == query)[0])
    rows = qrels.doc_rows[qrels.offsets[place] : qrels.offsets[place + 1]]
    relevant = frozenset(data.corpus.ids(rows))
    console.print(Text(f"\n“{data.queries.texts(np.array([query]))[0]}”", style="bold"))
    for when in ("before", "after"):
        ids = row[f"{when} documents"][:SHOWN_DOCUMENTS]
        texts = data.corpus.texts(data.corpus.rows_of(ids), "text")
        found = [{"rank": i, "id": d, "text": t} for i, (d, t) in enumerate(zip(ids, texts, strict=True), start=1)]
        print_found(console, found, f"{when} (✓ belongs to the object)", relevant)
