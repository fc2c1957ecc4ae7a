"""``opera mine``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import DataArgument, ModelOption, RelevantOption, SeedOption, load_training_data


def mine(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option("--out", help="file to write: .jsonl (FlagEmbedding) or .tsv (ids)")],
    range_: Annotated[str, typer.Option("--range", help="ranks LO:HI to take negatives from")] = "10:100",
    keep: Annotated[int, typer.Option("--keep", help="most negatives a query", min=1)] = 15,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
) -> None:
    """Mine hard negatives for the training queries; the .jsonl trains with this and with FlagEmbedding."""
    from opera.config.recipe import TrainSettings
    from opera.core.files import NEGATIVES_FORMATS, check_suffix
    from opera.training_set.negatives import check_range

    check_suffix(out, NEGATIVES_FORMATS)
    ranks = TrainSettings.parse({"negatives": "hard", "range": range_}).mining_range
    loaded = load_training_data(data, model, relevant_grade)
    check_range(ranks, len(loaded.corpus))

    from opera.training_set.export import mine_negatives

    count = mine_negatives(loaded, model, out, ranks, keep, seed)
    print(f"{out}: {count:,} negatives")
