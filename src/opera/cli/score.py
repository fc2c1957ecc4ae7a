"""``opera score``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import (
    MODELS,
    ColumnsOption,
    DataArgument,
    DocumentPromptOption,
    DocumentsOption,
    OverwriteOption,
    PairsOption,
    QueriesOption,
    QueryPromptOption,
    RelevantOption,
    RerankerOption,
    SeedOption,
    load_training_data,
    one_source,
    path_option,
    source_option,
)
from opera.core.arguments import MOST
from opera.core.errors import SettingError


def score(
    *,
    data: DataArgument = None,
    out: Annotated[Path, path_option("--out", "file to write: .parquet, .tsv or .jsonl")],
    model: Annotated[
        str | None, source_option("--model", f"{MODELS}; beside --reranker it mines")
    ] = None,
    reranker: RerankerOption = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            "--negatives",
            help="also score the negatives 'given' with the data, or N per query mined with "
            "--model",
        ),
    ] = None,
    range_: Annotated[
        str, typer.Option("--range", help="ranks LO:HI to mine them from")
    ] = "10:100",
    cbs: Annotated[
        bool, typer.Option("--cbs", help="also rank each pair among random documents (CBS)")
    ] = False,
    cbs_pool: Annotated[
        int | None,
        typer.Option(
            "--cbs-pool", help="how many random documents; default 10,000", min=1, max=MOST
        ),
    ] = None,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length", help="tokens of a pair that the reranker reads", min=8, max=MOST
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Write the pretrained similarity and estimated loss of every training pair: what SP ranks by
    and DP starts from.

    The loss is estimated by InfoNCE against random documents in place of a batch.

    With --reranker or --negatives: write a teacher's scores of training pairs and negatives, for
    --teacher of opera train; a .jsonl is a training file of FlagEmbedding with pos_scores and
    neg_scores."""
    from opera.methods.selection import CBS_POOL
    from opera.training_set.export_inputs import SCORE_FORMATS, ScoreInputs, checked_output

    data = one_source(data, pairs, documents, queries, columns)
    if cbs_pool and not cbs:
        raise SettingError("--cbs-pool: needs --cbs")
    pool = (cbs_pool or CBS_POOL) if cbs else 0
    asked = ScoreInputs.checked(model, reranker, negatives, range_, pool, max_length)
    checked_output(out, SCORE_FORMATS, overwrite, data, asked.reads(data), "--out")
    loaded = load_training_data(data)

    import numpy as np

    from opera.cli.printing.console import console
    from opera.cli.printing.results import print_measures
    from opera.training_set.export import score as score_pairs

    table = score_pairs(
        loaded,
        model=model,
        reranker=reranker,
        negatives=asked.negatives,
        range=asked.mining.range,
        out=out,
        cbs_pool=pool,
        relevant_grade=relevant_grade,
        seed=seed,
        overwrite=overwrite,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        max_length=max_length,
    )
    column = "score" if asked.by_teacher else "similarity"
    quantiles = np.quantile(table[column].to_numpy(), [0, 0.25, 0.5, 0.75, 1]).tolist()
    summary = dict(zip(("lowest", "25%", "median", "75%", "highest"), quantiles, strict=True))
    what = f"score of the {table.num_rows:,}" if asked.by_teacher else "similarity of the training"
    title = f"{what} pairs of {data}; all of them are in {out}"
    print_measures(console(), summary, title, head="quantile")
