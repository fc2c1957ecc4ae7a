"""``opera quickstart``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import JsonOption, SeedOption, interruptible, path_option, show
from opera.cli.results import how_to_use, print_before_after, print_next
from opera.cli.screen import Screen, flat
from opera.core.figures import PRIMARY, in_points
from opera.core.files import check_folder
from opera.run_folder.folder import Run

SHOWN = 3
"""Documents shown per search."""


def quickstart(
    out: Annotated[Path, path_option("--out", "folder to write")] = Path("quickstart"),
    method: Annotated[str, typer.Option("--method", help="method, as for opera train")] = "auto",
    seed: SeedOption = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace an earlier quickstart")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Teach all-MiniLM-L6-v2 to search the Python standard library: about 5 minutes on 2 cores."""
    check_folder(out / "run", "--out")  # importing torch fails if the current folder was deleted

    from opera.run.quickstart import quickstart as run_quickstart

    with interruptible(lambda: "the same command with --overwrite starts again"):
        run = run_quickstart(out, method, seed, overwrite)
    show(as_json, run.summary.as_dict, partial(print_quickstart, run=run))


def print_quickstart(screen: Screen, run: Run) -> None:
    """Print searches with the base and the final model, the verdict, and next steps."""
    _print_searches(screen, run)
    screen.lines("")
    print_before_after(screen, run)
    screen.heading(f"\nThe model: {run.model_path}")
    screen.lines(how_to_use(run))
    print_next(screen, run)
    opera = sys.argv[0] if Path(sys.argv[0]).name == "opera" else "opera"
    screen.heading("\nWith your own data:")
    screen.lines(
        f"  {opera} inspect {run.record.data.source} --model minilm",
        f"  {opera} train python:YOUR_PACKAGE --model minilm --out yours",
    )


def _print_searches(screen: Screen, run: Run) -> None:
    """Count the test queries that gained, lost and stayed. Print the query that gained most and the
    one that lost most, with the best documents of both models.
    """
    changed = run.review()["changed"]
    counts = ", ".join(f"{changed[kind]:,} {kind}" for kind in ("gained", "lost", "same"))
    screen.heading(f"\nHeld-out queries by {PRIMARY}: {counts}. The largest changes:")
    for query in (*changed["gains"][:1], *changed["losses"][:1]):
        change = f"{in_points(query['base'])} -> {in_points(query['final'])}"
        screen.heading(f"\n“{query['query']}” ({PRIMARY} {change})")
        for when in ("base", "final"):
            screen.heading(f"{when} (✓ belongs to the object)")
            for rank, document in enumerate(query[f"{when}_documents"][:SHOWN], start=1):
                mark = "✓" if document["labelled"] else " "
                screen.document(f"{mark} {rank}.  {flat(document['doc_id'])}", document["document"])
