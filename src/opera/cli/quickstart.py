"""``opera quickstart``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import SeedOption, interruptible, path_option
from opera.cli.results import how_to_use, print_before_after, print_labels
from opera.cli.screen import Screen, flat
from opera.core.files import check_folder

if TYPE_CHECKING:
    from opera.runs.folder import Run

SHOWN = 3
"""Searches, and documents of each."""


def quickstart(
    out: Annotated[Path, path_option("--out", "folder to write")] = Path("quickstart"),
    method: Annotated[str, typer.Option("--method", help="as for opera train")] = "auto",
    seed: SeedOption = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace an earlier quickstart")
    ] = False,
) -> None:
    """Teach all-MiniLM-L6-v2 to search the Python standard library: about 3 minutes on 2 cores."""
    check_folder(out / "run", "--out")  # before torch is loaded, as in opera export

    from opera.run.quickstart import quickstart as run_quickstart

    with interruptible(lambda: "the same command with --overwrite starts again"):
        run = run_quickstart(out, method, seed, overwrite)
    print_quickstart(Screen(), run)


def print_quickstart(screen: Screen, run: Run) -> None:
    """Print searches before and after, the measures, where the model is, and what to do next."""
    source = run.record.data.source
    _print_searches(screen, run)
    screen.lines("")
    print_before_after(screen, run)
    print_labels(screen, run)
    opera = sys.argv[0] if Path(sys.argv[0]).name == "opera" else "opera"
    screen.heading(f"\nThe model: {run.model_path}")
    screen.lines(how_to_use(run))
    screen.heading("\nNext:")
    screen.lines(
        f'  {opera} search {source} "parse a date string" --model {run.path}',
        f"  {opera} inspect {source} --model minilm",
        f"  {opera} train python:YOUR_PACKAGE --model minilm --out yours",
    )


def _print_searches(screen: Screen, run: Run) -> None:
    """Print queries drawn among those whose best documents changed, better or worse, with these
    before and after.
    """
    from opera.core.rng import generator
    from opera.data import load_data

    data, table = load_data(run.record.data.source), run.per_query()
    ranked = {when: table[f"{when} documents"].to_pylist() for when in ("before", "after")}
    changed = [
        row
        for row, (before, after) in enumerate(zip(*ranked.values(), strict=True))
        if before[:SHOWN] != after[:SHOWN]
    ]
    order = generator(run.settings["seed"], "quickstart.shown").permutation(len(changed))
    screen.heading("\nHeld-out queries, drawn at random from those whose best documents changed:")
    for row in sorted(changed[number] for number in order[:SHOWN]):
        query, relevant = (table[name][row].as_py() for name in ("query_id", "relevant"))
        screen.heading(f"\n“{data.queries.texts(data.queries.find_rows([query]))[0]}”")
        for when, documents in ranked.items():
            ids = documents[row][:SHOWN]
            texts = data.corpus.texts(data.corpus.find_rows(ids), "text")
            screen.heading(f"{when} (✓ belongs to the object)")
            for rank, (name, text) in enumerate(zip(ids, texts, strict=True), start=1):
                mark = "✓" if name in relevant else " "
                screen.document(f"{mark} {rank}.  {flat(name)}", text)
