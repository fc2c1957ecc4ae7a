"""``opera score``, ``opera mine`` and ``opera pairs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from opera.cli.options import (
    MODELS,
    DataArgument,
    EncodingOption,
    JsonOption,
    MaxLengthOption,
    ModelOption,
    OverwriteOption,
    RelevantOption,
    Screen,
    SeedOption,
    SkipOption,
    TableOptions,
    parser_of,
    path_option,
    setting_option,
    show,
    source_option,
    with_options,
)
from opera.config.arguments import ENCODING
from opera.config.negatives import MiningSettings
from opera.core.arguments import expand_user
from opera.core.errors import SettingError
from opera.core.figures import in_points
from opera.core.files import free_path
from opera.core.terminal import command_line, shown_path

MINING = [name for name in MiningSettings.model_fields if name != "keep"]
"""The settings of mining. Only ``keep`` has another default than in training."""


@with_options("range", *ENCODING)
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
    cbs: Annotated[
        bool, typer.Option("--cbs", help="also rank each pair among random documents (CBS)")
    ] = False,
    cbs_pool: Annotated[
        int | None,
        typer.Option("--cbs-pool", help="how many random documents; default: 10,000", min=1),
    ] = None,
    relevant_grade: RelevantOption = None,
    seed: SeedOption = 0,
    max_length: MaxLengthOption = None,
    overwrite: OverwriteOption = False,
    tables: TableOptions,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Write each training pair's similarity under the base model, and an estimate of its loss.

    SP ranks by these scores, and DP starts from them. The estimate is InfoNCE with random documents
    as negatives.

    With --reranker or --negatives: write a teacher's scores of training pairs and negatives, for
    opera train --teacher. A .jsonl file has FlagEmbedding's format, with pos_scores and
    neg_scores."""
    from opera.methods.static import CBS_POOL
    from opera.training.export import score as score_pairs

    if cbs_pool and not cbs:
        raise SettingError("--cbs-pool: needs --cbs")
    source = tables.source(data)
    table = score_pairs(
        source,
        model=model,
        reranker=reranker,
        negatives=negatives,
        out=out,
        cbs_pool=(cbs_pool or CBS_POOL) if cbs else 0,
        relevant_grade=relevant_grade,
        seed=seed,
        overwrite=overwrite,
        **settings,
        max_length=max_length,
    )
    import numpy as np

    from opera.data.names import source_title

    column = "score" if "score" in table.column_names else "similarity"
    quantiles = np.quantile(table[column].to_numpy(), [0, 0.25, 0.5, 0.75, 1]).tolist()
    summary = dict(zip(("lowest", "25%", "median", "75%", "highest"), quantiles, strict=True))

    def text(screen: Screen) -> None:
        screen.heading(
            f"{column} of {table.num_rows:,} pairs of {source_title(source)}; {out} lists all"
        )
        rows = [(name, in_points(value)) for name, value in summary.items()]
        screen.table(("quantile", "value"), rows)

    show(
        as_json,
        lambda: {"file": str(out), "pairs": table.num_rows, column: summary},
        text,
    )


@with_options(*MINING, *ENCODING)
def mine(
    *,
    data: DataArgument = None,
    model: ModelOption,
    out: Annotated[
        Path, path_option("--out", "file to write: .jsonl (FlagEmbedding) or .tsv (ids)")
    ],
    keep: Annotated[Any, setting_option("keep")] = "15",
    relevant_grade: RelevantOption = None,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    tables: TableOptions,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Mine hard negatives for the training queries. OPERA and FlagEmbedding train on the .jsonl."""
    from opera.training.export import mine as mine_negatives

    table = mine_negatives(
        tables.source(data),
        model=model,
        out=out,
        keep=keep,
        relevant_grade=relevant_grade,
        seed=seed,
        overwrite=overwrite,
        **settings,
    )
    show(
        as_json,
        lambda: {"file": str(out), "negatives": table.num_rows},
        lambda screen: screen.lines(f"{shown_path(out)}: {table.num_rows:,} negatives"),
    )


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
    as_json: JsonOption = False,
) -> None:
    """Generate weak training pairs from a corpus without labels: titles, headings, questions and
    docstrings, each with the text below it.
    """
    from opera.training.corpus_pairs import pairs as make_pairs

    table = make_pairs(
        corpus,
        out=out,
        columns=columns,
        encoding=encoding,
        skip_bad_rows=skip_bad_rows,
        overwrite=overwrite,
    )
    origins = table["origin"]
    counts = {row["values"]: row["counts"] for row in origins.value_counts().to_pylist()}
    listed = ", ".join(f"{count:,} {origin}" for origin, count in counts.items())
    options = (
        "--expected-documents",
        "known",
        "--model",
        "minilm",
        "--out",
        free_path(Path("run")),
    )

    def print_pairs(screen: Screen) -> None:
        screen.lines(f"{shown_path(out)}: {len(origins):,} pairs ({listed})")
        screen.commands(command_line("train", out, *options))

    show(
        as_json,
        lambda: {"file": str(out), "pairs": len(origins), "origins": counts},
        print_pairs,
    )
