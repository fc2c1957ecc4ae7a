"""``opera score``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import DataArgument, ModelOption, RelevantOption, SeedOption, load_training_data
from opera.core.errors import SettingError


def score(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="file to write: .parquet, .tsv or .jsonl")],
    cbs: Annotated[bool, typer.Option("--cbs", help="also rank each pair among random documents (CBS)")] = False,
    cbs_pool: Annotated[
        int | None, typer.Option("--cbs-pool", help="how many random documents; default 10,000", min=1)
    ] = None,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
) -> None:
    """Write the pretrained similarity and stand-in loss of every training pair: what SP ranks by and DP starts from."""
    from opera.core.files import SCORE_FORMATS, check_suffix

    if cbs_pool and not cbs:
        raise SettingError("--cbs-pool: needs --cbs")
    check_suffix(out, SCORE_FORMATS)
    loaded = load_training_data(data, model, relevant_grade)

    from opera.cli.printing.console import console
    from opera.cli.printing.results import print_measures
    from opera.methods.selection import CBS_POOL
    from opera.training_set.export import score_pairs

    summary, note = score_pairs(loaded, model, out, seed, (cbs_pool or CBS_POOL) if cbs else 0)
    print_measures(console(), summary, f"similarity of {data}'s training pairs; {out} has them all")
    if note:
        print(note)
