"""``opera score``, ``opera mine`` and ``opera pairs``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from opera.cli.options import (
    MODELS,
    ColumnsOption,
    DataArgument,
    DocumentPromptOption,
    DocumentsOption,
    EncodingOption,
    ModelOption,
    OverwriteOption,
    PairsOption,
    QueriesOption,
    QueryPromptOption,
    RelevantOption,
    SeedOption,
    SkipOption,
    load_training_data,
    one_source,
    parser_of,
    path_option,
    source_option,
    with_notes_logged,
)
from opera.cli.screen import Screen
from opera.core.errors import SettingError
from opera.core.paths import expand_user
from opera.core.terminal import place, say


def score(
    *,
    data: DataArgument = None,
    out: Annotated[Path, path_option("--out", "file to write: .parquet, .tsv or .jsonl")],
    model: Annotated[
        str | None, source_option("--model", f"{MODELS}; with --reranker it mines the negatives")
    ] = None,
    reranker: Annotated[
        str | None,
        source_option("--reranker", "cross-encoder: sentence-transformers folder or hub id"),
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            "--negatives",
            help="also score negatives: 'given' for those in the data, or N to mine N per query "
            "with --model",
        ),
    ] = None,
    range_: Annotated[
        str, typer.Option("--range", help="ranks LO:HI to mine negatives from")
    ] = "10:100",
    cbs: Annotated[
        bool, typer.Option("--cbs", help="also rank each pair among random documents (CBS)")
    ] = False,
    cbs_pool: Annotated[
        int | None,
        typer.Option("--cbs-pool", help="how many random documents; default: 10,000", min=1),
    ] = None,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", help="most tokens of a pair for the reranker", min=8),
    ] = None,
    overwrite: OverwriteOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
) -> None:
    """Write each training pair's similarity under the base model, and an estimate of its loss.

    SP ranks by these scores, and DP starts from them. The estimate is InfoNCE with random documents
    as negatives.

    With --reranker or --negatives: write a teacher's scores of training pairs and negatives, for
    opera train --teacher. A .jsonl file has FlagEmbedding's format, with pos_scores and
    neg_scores."""
    from opera.methods.selection import CBS_POOL
    from opera.retrieval.locate import inputs_of
    from opera.training_pairs.export_inputs import SCORE_FORMATS, ScoreInputs, checked_output

    source = one_source(data, pairs, documents, queries, columns, encoding, skip_bad_rows)
    pool = (cbs_pool or CBS_POOL) if cbs else 0
    if cbs_pool and not cbs:
        raise SettingError("--cbs-pool: needs --cbs")
    inputs = ScoreInputs.checked(model, reranker, negatives, range_, pool, max_length)
    reads = inputs_of(source, inputs.model, inputs.reranker)
    checked_output(out, SCORE_FORMATS, overwrite, source, reads, "--out")
    loaded = with_notes_logged(load_training_data(source))

    import numpy as np

    from opera.training_pairs.export import score as score_pairs

    table = score_pairs(
        loaded,
        model=model,
        reranker=reranker,
        negatives=inputs.negatives,
        range=inputs.mining.range,
        out=out,
        cbs_pool=pool,
        relevant_grade=relevant_grade,
        seed=seed,
        overwrite=overwrite,
        max_length=max_length,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    column, title = "similarity", "similarity of the training"
    if inputs.by_teacher:
        column, title = "score", f"score of the {table.num_rows:,}"
    quantiles = np.quantile(table[column].to_numpy(), [0, 0.25, 0.5, 0.75, 1]).tolist()
    summary = dict(zip(("lowest", "25%", "median", "75%", "highest"), quantiles, strict=True))
    Screen().measures(f"{title} pairs of {source}; {out} lists all", summary, "quantile")


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
    keep: Annotated[int, typer.Option("--keep", help="maximum negatives per query", min=1)] = 15,
    relative_margin: Annotated[
        float | None,
        typer.Option(
            "--relative-margin",
            help="leave out documents above (1 - MARGIN) times the positive's similarity",
        ),
    ] = None,
    absolute_margin: Annotated[
        float | None,
        typer.Option(
            "--absolute-margin",
            help="leave out documents above the positive's similarity minus MARGIN",
        ),
    ] = None,
    max_score: Annotated[
        float | None, typer.Option("--max-score", help="leave out documents above this similarity")
    ] = None,
    reranker: Annotated[
        str | None,
        source_option(
            "--reranker", "cross-encoder: leave out documents that it scores as high as a positive"
        ),
    ] = None,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    overwrite: OverwriteOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
) -> None:
    """Mine hard negatives for the training queries. OPERA and FlagEmbedding train on the .jsonl."""
    from opera.retrieval.locate import inputs_of
    from opera.training_pairs.export_inputs import (
        NEGATIVES_FORMATS,
        checked_output,
        mining_settings,
    )
    from opera.training_pairs.mining import check_range

    source = one_source(data, pairs, documents, queries, columns, encoding, skip_bad_rows)
    reads = inputs_of(source, model, reranker or None)
    checked_output(out, NEGATIVES_FORMATS, overwrite, source, reads, "--out")
    margins = (relative_margin, absolute_margin, max_score)
    ranks = mining_settings(range_, *margins, reranker).range
    loaded = with_notes_logged(load_training_data(source, model))
    check_range(ranks, len(loaded.corpus))

    from opera.training_pairs.export import mine as mine_negatives

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
        relevant_grade=relevant_grade,
        seed=seed,
        overwrite=overwrite,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    say(f"{place(out)}: {table.num_rows:,} negatives")


def pairs(
    *,
    corpus: Annotated[
        str,
        typer.Argument(
            help="BEIR folder, table of documents (CSV, TSV, JSONL, Parquet, Arrow), folder of "
            "Markdown or texts, or python:PACKAGE",
            metavar="CORPUS",
            parser=parser_of(expand_user, "CORPUS"),
        ),
    ],
    out: Annotated[Path, path_option("--out", "table to write: .csv, .parquet or .jsonl")],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            help="which columns to read: id=number,title=heading,text=body",
            metavar="ROLE=COLUMN",
        ),
    ] = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Generate weak training pairs from a corpus without labels: titles, headings, questions and
    docstrings, each with the text below it.
    """
    from opera.training_pairs.corpus_pairs import pairs as make_pairs

    reading: dict[str, Any] = {
        "columns": columns,
        "encoding": encoding,
        "skip_bad_rows": skip_bad_rows,
    }
    origins = make_pairs(corpus, out=out, overwrite=overwrite, **reading)["origin"]
    counts = [
        f"{origin['counts']:,} {origin['values']}" for origin in origins.value_counts().to_pylist()
    ]
    say(f"{place(out)}: {len(origins):,} pairs ({', '.join(counts)})")
    say(f"opera train {quote(place(out))} --expected-documents known --model minilm --out run")
