"""``opera evaluate`` and ``opera search``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.cli.options import (
    Bm25Option,
    DepthOption,
    FirstStageOption,
    JsonOption,
    MaxLengthOption,
    OptionalModel,
    OverwriteOption,
    RelevantOption,
    RunOrData,
    Screen,
    TableOptions,
    flat,
    is_main_process,
    path_option,
    show,
    source_option,
    with_options,
)
from opera.cli.reranker import print_reranked
from opera.config.arguments import ENCODING
from opera.config.training import EncodingSettings
from opera.core.errors import SettingError, raise_first
from opera.core.terminal import counted, say

if TYPE_CHECKING:
    from opera.retrieval.evaluation import Evaluation
    from opera.retrieval.search import RankedDocument


@with_options(*ENCODING)
def evaluate(
    *,
    data: RunOrData = None,
    model: OptionalModel = None,
    split: Annotated[str, typer.Option("--split", help="split to measure on")] = "test",
    measures: Annotated[
        str | None,
        typer.Option(
            "--measures",
            help="names of ir_measures, separated by commas, such as nDCG@10,R@100,AP",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="all measures at 1, 5, 10, 20, 50 and 100")
    ] = False,
    bm25: Bm25Option = None,
    hybrid: Annotated[
        bool,
        typer.Option(
            "--hybrid",
            help="fuse the model with keyword search too, by the run's weight, or one from dev",
        ),
    ] = False,
    reranker: Annotated[
        str | None,
        source_option(
            "--reranker",
            "also sort the best documents of a first stage by a cross-encoder: folder, hub id, or "
            "what opera train --kind reranker wrote",
        ),
    ] = None,
    first_stage: FirstStageOption = None,
    depth: DepthOption = None,
    max_length: MaxLengthOption = None,
    relevant_grade: RelevantOption = None,
    run_file: Annotated[
        Path | None, path_option("--run-file", "also write the ranking as a TREC run")
    ] = None,
    overwrite: OverwriteOption = False,
    tables: TableOptions,
    as_json: JsonOption = False,
    **encoding: Any,
) -> None:
    """Measure a model on a split of a data set, or of the data of a run."""
    from opera.config.arguments import checked_output
    from opera.core.figures import DEFAULT_MEASURES
    from opera.data import load_all
    from opera.data.loading import log_notes
    from opera.retrieval.locate import BM25, data_and_model, first_stage_model, inputs_of
    from opera.retrieval.measures import (
        FULL_MEASURES,
        check_trec_ids,
        parse_measures,
        write_trec_run,
    )

    if measures is not None and full:
        raise SettingError("--full --measures: give one of the two")
    default = FULL_MEASURES if full else DEFAULT_MEASURES
    parsed = parse_measures(default if measures is None else measures)
    named = tables.source(data)
    ranks_alone = model if reranker is None else first_stage or BM25
    source, name, run = data_and_model(named, ranks_alone)
    if run_file:
        ranking_model = name if reranker is None else first_stage_model(name)
        reads = inputs_of(source, ranking_model, reranker)
        checked_output(run_file, (".trec", ".run", ".txt"), overwrite, source, reads, "--run-file")
    mixture = load_all([source])
    loaded = log_notes(mixture.joined)
    if run_file:
        check_trec_ids(run_file, loaded, split)

    from opera.run.evaluate import evaluate as evaluate_model

    measured = mixture if run == name else named  # the run gives splits and grades too
    options: dict[str, Any] = {
        "relevant_grade": relevant_grade,
        "bm25": bm25,
        "hybrid": hybrid,
        "depth": depth,
        "max_length": max_length,
        **encoding,
    }
    if reranker is None:
        options |= {"model": name, "first_stage": first_stage}
    else:
        options |= {"model": model, "first_stage": name, "reranker": reranker}
    result = evaluate_model(measured, split=split, measures=parsed, **options)
    if run_file and is_main_process():
        best = result.reranked or result.hybrid or result
        write_trec_run(run_file, result.query_ids, best.ranking, loaded)
    title = f"{name} on {loaded.title}, {split}: {counted(len(result.query_ids), 'query')}"
    show(
        as_json,
        lambda: {"model": name, "data": mixture.source, **_as_dict(result, reranker)},
        partial(_print_evaluation, title=title, result=result, reranker=reranker),
    )


def _as_dict(result: Evaluation, reranker: str | None) -> dict[str, Any]:
    """The results of an evaluation, for JSON."""
    from opera.core.figures import mean_intervals

    reranked = result.reranked
    return {
        "split": result.split,
        "queries": len(result.query_ids),
        "measures": result.measures,
        "intervals": mean_intervals(result.per_query),
        "bm25": result.bm25 and result.bm25.measures,
        "hybrid": result.hybrid and result.hybrid.measures,
        "keyword_weights": result.keyword_weights,
        "index": result.index,
        "reranked": reranked
        and {
            "reranker": reranker,
            "depth": reranked.depth,
            "pairs": reranked.pairs,
            "seconds_per_query": reranked.seconds_per_query,
            "measures": reranked.measures,
            "changes": {name: asdict(change) for name, change in reranked.changes.items()},
        },
    }


def _print_evaluation(screen: Screen, title: str, result: Evaluation, reranker: str | None) -> None:
    """Print a row per measure, with columns for keyword search and for both together, or for the
    reranker.
    """
    from opera.core.figures import few_queries, in_points, index_sentence, mean_intervals

    if result.reranked is not None:
        print_reranked(screen, title, result, reranker)
        return
    intervals = mean_intervals(result.per_query)
    searches = (("BM25", result.bm25), ("model + BM25", result.hybrid))
    others = {heading: search.measures for heading, search in searches if search is not None}
    rows = [
        (
            measure,
            in_points(value),
            " to ".join(map(in_points, intervals.get(measure, ()))),
            *(in_points(means[measure]) for means in others.values()),
        )
        for measure, value in result.measures.items()
    ]
    screen.heading(title)
    screen.table(("measure", "value", "95% interval", *others), rows)
    for data_set, weight in result.keyword_weights.items():
        screen.lines(f"weight of keyword search in {data_set}: {weight:g}")
    if result.index:
        screen.lines(index_sentence(result.index))
    screen.lines(few_queries(len(result.query_ids), result.split))


@with_options(*ENCODING)
def search(
    *,
    data: RunOrData = None,
    query: Annotated[str | None, typer.Argument(help="what to search for", metavar="QUERY")] = None,
    model: OptionalModel = None,
    top: Annotated[int, typer.Option("--top", help="how many documents", min=1)] = 5,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive",
            help="read queries from standard input, one per line, until an empty line",
        ),
    ] = False,
    cutoff: Annotated[
        float | None,
        typer.Option(
            "--cutoff", help="lowest score at which a document is good enough, such as 0.42"
        ),
    ] = None,
    min_precision: Annotated[
        float | None,
        typer.Option(
            "--min-precision",
            help="use the run's cut-off for this precision of the answers, such as 0.8",
        ),
    ] = None,
    hybrid: Annotated[
        bool | None,
        typer.Option(
            "--hybrid/--no-hybrid",
            help="fuse the model with keyword search; default: by the run's weight, if it has one",
        ),
    ] = None,
    tables: TableOptions,
    as_json: JsonOption = False,
    **encoding: Any,
) -> None:
    """Search a corpus with a model. A run names both.

    With --interactive, the model stays loaded, so further searches are quick.
    """
    from opera.data import Mixture, load_data
    from opera.data.loading import log_notes
    from opera.retrieval.locate import data_and_model
    from opera.retrieval.search import CorpusSearch, checked_query

    if query is None and tables.pairs and not interactive:
        query, data = data, None  # with --pairs, the first argument is the query
    raise_first(
        SettingError,
        (query is None and not interactive, "missing argument 'QUERY'; see opera search --help"),
        (
            query is not None and interactive,
            "--interactive: reads queries from standard input; leave QUERY out",
        ),
    )
    queries = [] if query is None else [checked_query(query)]
    settings = EncodingSettings.chosen(**encoding)
    source, name, _ = data_and_model(tables.source(data), model)
    loaded = load_data(source)
    if not isinstance(source, Mixture):  # the training of a run has shown the notes on its data
        log_notes(loaded)
    corpus = CorpusSearch(loaded, name, cutoff, min_precision, hybrid, settings)
    weight = corpus.keyword_weight
    words = f", with keyword search (w = {weight:g})" if weight else ""
    if interactive:
        say("one query per line (an empty line ends):", file=sys.stderr)
    for text in queries or takewhile(bool, map(str.strip, sys.stdin)):
        documents = corpus.find(text, top)
        title = f"“{text}” in {corpus.data.title}{words}"
        page = partial(_print_documents, title=title, documents=documents, cutoff=corpus.cutoff)
        show(as_json, partial(list, map(asdict, documents)), page)


def _print_documents(
    screen: Screen, title: str, documents: list[RankedDocument], cutoff: float | None
) -> None:
    screen.heading(title)
    if not documents[0].good_enough:
        screen.lines(f"no document is good enough (none scores {cutoff:.3f} or more); the best:")
    for document in documents:
        head = f"  {document.rank}.  {document.score:.3f}  {flat(document.id)}"
        screen.document(head, document.passage or document.text)
