"""``opera evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import (
    ColumnsOption,
    DataArgument,
    DocumentPromptOption,
    DocumentsOption,
    JsonOption,
    ModelOption,
    OverwriteOption,
    PairsOption,
    QueriesOption,
    QueryPromptOption,
    is_main_process,
    one_source,
    path_option,
)
from opera.core.arguments import MOST
from opera.core.terminal import json_text, say

RUN_FORMATS = (".trec", ".run", ".txt")


def evaluate(
    *,
    data: DataArgument = None,
    model: ModelOption,
    split: Annotated[str, typer.Option("--split", help="which qrels to use")] = "test",
    measures: Annotated[
        str | None,
        typer.Option(
            "--measures", help="comma-separated, as ir_measures names them: nDCG@10,R@100,AP"
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="all measures at 1, 5, 10, 20, 50 and 100")
    ] = False,
    relevant_grade: Annotated[
        int | None,
        typer.Option(
            "--relevant-grade",
            help="lowest grade that counts as relevant; auto: a run's own, or 1",
            min=1,
            max=MOST,
        ),
    ] = None,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    run_file: Annotated[
        Path | None, path_option("--run-file", "also write the ranking as a TREC run")
    ] = None,
    overwrite: OverwriteOption = False,
    json_: JsonOption = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
) -> None:
    """Measure a model on a split of a data set."""
    from opera.data import load_data
    from opera.retrieval.locate import inputs_of
    from opera.retrieval.measures import (
        DEFAULT_MEASURES,
        FULL_MEASURES,
        check_trec_ids,
        parse_measures,
        split_names,
        write_trec_run,
    )
    from opera.training_set.export_inputs import checked_output

    data = one_source(data, pairs, documents, queries, columns)
    names = (
        split_names(measures)
        if measures is not None
        else FULL_MEASURES
        if full
        else DEFAULT_MEASURES
    )
    parse_measures(names)
    if run_file:
        checked_output(run_file, RUN_FORMATS, overwrite, data, inputs_of(data, model), "--run-file")
    loaded = load_data(data)
    if run_file:
        check_trec_ids(run_file, loaded, split)

    from opera.cli.printing.console import console
    from opera.cli.printing.results import print_measures, warn_of_few
    from opera.core.intervals import mean_intervals
    from opera.retrieval.evaluation import evaluate as evaluate_model

    result = evaluate_model(
        loaded,
        model=model,
        split=split,
        measures=names,
        relevant_grade=relevant_grade,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    if run_file and is_main_process():
        write_trec_run(run_file, result, loaded)
    intervals, count = mean_intervals(result.per_query), len(result.query_ids)
    if json_:
        facts = {"model": model, "data": data, "split": split, "queries": count}
        say(json_text({**facts, "measures": result.measures, "intervals": intervals}))
    else:
        screen, title = console(), f"{model} on {data}, {split}: {count} queries"
        print_measures(screen, result.measures, title, intervals=intervals)
        warn_of_few(screen, count, split)
