"""``opera quickstart``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import SeedOption, interruptible, path_option
from opera.core.files import check_folder


def quickstart(
    out: Annotated[Path, path_option("--out", "folder to write")] = Path("quickstart"),
    method: Annotated[str, typer.Option("--method", help="as for opera train")] = "auto",
    seed: SeedOption = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace an earlier quickstart")
    ] = False,
) -> None:
    """Teach all-MiniLM-L6-v2 to search the Python standard library: about 4 minutes on 2 cores."""
    check_folder(out / "run", "--out")  # before torch is loaded, as in opera export

    from opera.cli.printing.console import console
    from opera.cli.printing.quickstart import print_quickstart
    from opera.training.quickstart import quickstart as run_quickstart

    with interruptible(lambda: "the same command with --overwrite starts again"):
        run = run_quickstart(out, method, seed, overwrite)
    print_quickstart(console(), run)
