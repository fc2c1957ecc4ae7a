"""``opera quickstart``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from opera.cli.options import SeedOption, interruptible, path_option
from opera.cli.results import how_to_use, print_before_after, print_next
from opera.cli.screen import Screen, flat
from opera.config.trainer import PRIMARY
from opera.core.files import check_folder

if TYPE_CHECKING:
    from opera.runs.folder import Run

SHOWN = 3
"""Documents shown per search."""


def quickstart(
    out: Annotated[Path, path_option("--out", "folder to write")] = Path("quickstart"),
    method: Annotated[str, typer.Option("--method", help="method, as for opera train")] = "auto",
    seed: SeedOption = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace an earlier quickstart")
    ] = False,
) -> None:
    """Teach all-MiniLM-L6-v2 to search the Python standard library: about 3 minutes on 2 cores."""
    check_folder(out / "run", "--out")  # importing torch fails if the current folder was deleted

    from opera.run.quickstart import quickstart as run_quickstart

    with interruptible(lambda: "the same command with --overwrite starts again"):
        run = run_quickstart(out, method, seed, overwrite)
    print_quickstart(Screen(), run)


def print_quickstart(screen: Screen, run: Run) -> None:
    """Print searches with the base and the final model, the verdict, and next steps."""
    source = run.record.data.source
    _print_searches(screen, run)
    screen.lines("")
    print_before_after(screen, run)
    screen.heading(f"\nThe model: {run.model_path}")
    screen.lines(how_to_use(run))
    print_next(screen, run)
    opera = sys.argv[0] if Path(sys.argv[0]).name == "opera" else "opera"
    screen.heading("\nWith your own data:")
    screen.lines(
        f"  {opera} inspect {source} --model minilm",
        f"  {opera} train python:YOUR_PACKAGE --model minilm --out yours",
    )


def _print_searches(screen: Screen, run: Run) -> None:
    """Count the test queries that gained, lost and stayed. Print a random query of each kind with
    the best documents of both models.
    """
    from opera.core.rng import generator
    from opera.data import load_data

    data, table = load_data(run.record.data.source), run.per_query()
    base, final = (table[f"{when} {PRIMARY}"].to_numpy() for when in ("base", "final"))
    ranked = {when: table[f"{when} documents"].to_pylist() for when in ("base", "final")}
    kinds = {"gained": final > base, "lost": final < base, "unchanged": final == base}
    counts = ", ".join(f"{is_kind.sum():,} {kind}" for kind, is_kind in kinds.items())
    screen.heading(f"\n{table.num_rows:,} held-out queries by {PRIMARY}: {counts}. One of each:")
    rng = generator(run.settings["seed"], "quickstart.shown")
    for kind, is_kind in kinds.items():
        if not is_kind.any():
            continue
        row = int(rng.choice(np.flatnonzero(is_kind)))
        query, relevant = (table[name][row].as_py() for name in ("query_id", "relevant"))
        text = data.queries.texts(data.queries.find_rows([query]))[0]
        change = f"{100 * base[row]:.1f} -> {100 * final[row]:.1f}"
        screen.heading(f"\n{kind}: “{text}” ({PRIMARY} {change})")
        for when, documents in ranked.items():
            ids = documents[row][:SHOWN]
            texts = data.corpus.texts(data.corpus.find_rows(ids), "text")
            screen.heading(f"{when} (✓ belongs to the object)")
            for rank, (name, document) in enumerate(zip(ids, texts, strict=True), start=1):
                mark = "✓" if name in relevant else " "
                screen.document(f"{mark} {rank}.  {flat(name)}", document)
