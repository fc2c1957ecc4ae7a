"""``opera mine``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import (
    ColumnsOption,
    DataArgument,
    DocumentPromptOption,
    DocumentsOption,
    IndexOption,
    ModelOption,
    OverwriteOption,
    PairsOption,
    QueriesOption,
    QueryPromptOption,
    RelevantOption,
    SeedOption,
    load_training_data,
    one_source,
    path_option,
    source_option,
)
from opera.core.arguments import MOST
from opera.core.terminal import place, say


def mine(
    *,
    data: DataArgument = None,
    model: ModelOption,
    out: Annotated[
        Path, path_option("--out", "file to write: .jsonl (FlagEmbedding) or .tsv (ids)")
    ],
    range_: Annotated[
        str, typer.Option("--range", help="ranks LO:HI to take negatives from")
    ] = "10:100",
    keep: Annotated[
        int, typer.Option("--keep", help="maximum negatives per query", min=1, max=MOST)
    ] = 15,
    relative_margin: Annotated[
        float | None,
        typer.Option(
            "--relative-margin",
            help="leave out what is above (1 - MARGIN) times the positive's similarity",
        ),
    ] = None,
    absolute_margin: Annotated[
        float | None,
        typer.Option(
            "--absolute-margin", help="leave out what is above that similarity minus MARGIN"
        ),
    ] = None,
    max_score: Annotated[
        float | None, typer.Option("--max-score", help="leave out what is above this similarity")
    ] = None,
    reranker: Annotated[
        str | None,
        source_option(
            "--reranker", "cross-encoder: leave out what it scores as high as a positive"
        ),
    ] = None,
    index: IndexOption = "exact",
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    overwrite: OverwriteOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Mine hard negatives for the training queries; OPERA and FlagEmbedding train with the
    .jsonl.
    """
    from opera.retrieval.locate import inputs_of, locate_model
    from opera.training_set.export_inputs import NEGATIVES_FORMATS, checked_output, mining_settings
    from opera.training_set.mining import check_range

    data = one_source(data, pairs, documents, queries, columns)
    reads = [*inputs_of(data, model), *([] if reranker is None else [Path(locate_model(reranker))])]
    checked_output(out, NEGATIVES_FORMATS, overwrite, data, reads, "--out")
    ranks = mining_settings(
        range_, relative_margin, absolute_margin, max_score, reranker, index
    ).range
    loaded = load_training_data(data, model)
    check_range(ranks, len(loaded.corpus))

    from opera.training_set.export import mine as mine_negatives

    table = mine_negatives(
        loaded,
        model=model,
        out=out,
        range=ranks,
        keep=keep,
        relative_margin=relative_margin,
        absolute_margin=absolute_margin,
        max_score=max_score,
        reranker=reranker,
        index=index,
        relevant_grade=relevant_grade,
        seed=seed,
        overwrite=overwrite,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    say(f"{place(out)}: {table.num_rows:,} negatives")
