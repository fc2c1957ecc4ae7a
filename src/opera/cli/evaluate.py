"""``opera evaluate`` and ``opera search``: a model in use."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from opera.cli.options import (
    Answer,
    DataArgument,
    IndexOption,
    ModelOption,
    OverwriteOption,
    Prompts,
    Tables,
    is_main_process,
    path_option,
)
from opera.cli.screen import Screen, flat
from opera.core.arguments import MOST
from opera.core.errors import SettingError

log = logging.getLogger("opera")

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
    prompts: Prompts,
    run_file: Annotated[
        Path | None, path_option("--run-file", "also write the ranking as a TREC run")
    ] = None,
    overwrite: OverwriteOption = False,
    tables: Tables,
) -> Answer:
    """Measure a model on a split of a data set."""
    from opera.core.intervals import few_queries, mean_intervals
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

    source, names = tables(data), FULL_MEASURES if full else DEFAULT_MEASURES
    if measures is not None:
        if full:
            raise SettingError("--full --measures: give one of the two")
        names = split_names(measures)
    parse_measures(names)
    if run_file:
        reads = inputs_of(source, model)
        checked_output(run_file, RUN_FORMATS, overwrite, source, reads, "--run-file")
    loaded = load_data(source)
    for note in loaded.notes:
        log.info("note: %s", note)
    if run_file:
        check_trec_ids(run_file, loaded, split)

    from opera.retrieval.evaluation import evaluate as evaluate_model

    asked = {"split": split, "measures": names, "relevant_grade": relevant_grade}
    result = evaluate_model(loaded, model=model, **asked, **prompts)  # type: ignore[arg-type]
    if run_file and is_main_process():
        write_trec_run(run_file, result, loaded)
    intervals, count = mean_intervals(result.per_query), len(result.query_ids)
    facts = {"model": model, "data": source, "split": split, "queries": count}

    def text(screen: Screen) -> None:
        title = f"{model} on {source}, {split}: {count} queries"
        screen.measures(title, result.measures, intervals=intervals)
        screen.lines(few_queries(count, split))

    return Answer(lambda: {**facts, "measures": result.measures, "intervals": intervals}, text)


def search(
    *,
    data: DataArgument = None,
    query: Annotated[str | None, typer.Argument(help="what to search for", metavar="QUERY")] = None,
    model: ModelOption,
    top: Annotated[int, typer.Option("--top", help="how many documents", min=1, max=MOST)] = 5,
    index: IndexOption = "exact",
    prompts: Prompts,
    tables: Tables,
) -> Answer:
    """Search a corpus with a model."""
    from opera.retrieval.search import search as search_data

    asked, source = (query, data) if query is not None else (data, None)  # beside --pairs no DATA
    if asked is None or (query is None and not tables.keywords["pairs"]):
        raise SettingError("missing argument 'QUERY'; see opera search --help")
    named = tables(source)
    found = search_data(named, asked, model=model, top=top, index=index, **prompts)

    def text(screen: Screen) -> None:
        screen.heading(f"“{asked}” in {named}")
        for each in found:
            screen.document(f"  {each.rank}.  {each.score:.3f}  {flat(each.id)}", each.text)

    return Answer(lambda: [asdict(document) for document in found], text)
