"""``opera score``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import (
    DataArgument,
    DocumentPromptOption,
    ModelOption,
    OverwriteOption,
    QueryPromptOption,
    RelevantOption,
    SeedOption,
    load_training_data,
    path_option,
)
from opera.core.arguments import MOST
from opera.core.errors import SettingError


def score(
    data: DataArgument,
    model: ModelOption,
    out: Annotated[Path, path_option("--out", "file to write: .parquet, .tsv or .jsonl")],
    cbs: Annotated[bool, typer.Option("--cbs", help="also rank each pair among random documents (CBS)")] = False,
    cbs_pool: Annotated[
        int | None, typer.Option("--cbs-pool", help="how many random documents; default 10,000", min=1, max=MOST)
    ] = None,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the pretrained similarity and estimated loss of every training pair: what SP ranks by and DP starts from.

    The loss is estimated by InfoNCE against random documents in place of a batch."""
    from opera.core.files import check_output
    from opera.retrieval.locate import inputs_of
    from opera.training_set.formats import SCORE_FORMATS

    if cbs_pool and not cbs:
        raise SettingError("--cbs-pool: needs --cbs")
    check_output(out, "--out", SCORE_FORMATS, overwrite=overwrite, reads=inputs_of(data, model))
    loaded = load_training_data(data, model)

    import numpy as np

    from opera.cli.printing.console import console
    from opera.cli.printing.results import print_measures
    from opera.methods.selection import CBS_POOL
    from opera.training_set.export import score as score_pairs

    pool = (cbs_pool or CBS_POOL) if cbs else 0
    table = score_pairs(
        loaded,
        model=model,
        out=out,
        cbs_pool=pool,
        relevant_grade=relevant_grade,
        seed=seed,
        overwrite=overwrite,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    quantiles = np.quantile(table["similarity"].to_numpy(), [0, 0.25, 0.5, 0.75, 1]).tolist()
    summary = dict(zip(("lowest", "25%", "median", "75%", "highest"), quantiles, strict=True))
    title = f"similarity of the training pairs of {data}; all of them are in {out}"
    print_measures(console(), summary, title, head="quantile")
