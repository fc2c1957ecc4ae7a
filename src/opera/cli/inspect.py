"""``opera inspect``."""

from __future__ import annotations

from typing import Annotated

import typer

from opera.cli.options import (
    ColumnsOption,
    DataArgument,
    DocumentPromptOption,
    DocumentsOption,
    JsonOption,
    ModelOption,
    PairsOption,
    QueriesOption,
    QueryPromptOption,
    RelevantOption,
    SeedOption,
    one_source,
)
from opera.core.arguments import MOST
from opera.core.terminal import json_text, say


def inspect(
    *,
    data: DataArgument = None,
    model: ModelOption,
    show: Annotated[
        int, typer.Option("--show", help="how many suspicious pairs to show", min=0, max=MOST)
    ] = 10,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    json_: JsonOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Analyse a data set before training: sizes, noise, duplicates, leaks, suspicious pairs.
    Suggests a method.
    """
    from opera.data import load_data
    from opera.retrieval.locate import locate_model

    data = one_source(data, pairs, documents, queries, columns)
    locate_model(model)
    loaded = load_data(data)
    loaded.training_split()

    from opera.cli.printing.console import console
    from opera.cli.printing.inspection import print_inspection
    from opera.diagnostics.inspect import inspect as inspect_data

    seen = inspect_data(
        loaded,
        model=model,
        show=show,
        seed=seed,
        relevant_grade=relevant_grade,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    if json_:
        say(json_text(seen.as_dict()))
    else:
        print_inspection(console(), seen)
