"""The results of a reranker: after ``opera evaluate`` and ``opera train --kind reranker``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opera.cli.options import Screen, list_sentence
from opera.core.figures import DEFAULT_MEASURES, PRIMARY, few_queries, in_points
from opera.core.terminal import command_line, counted

if TYPE_CHECKING:
    from opera.retrieval.evaluation import Evaluation
    from opera.run_folder.reranker_run import RerankerRun
    from opera.run_folder.summary import Change


def print_reranked(screen: Screen, title: str, result: Evaluation, reranker: str | None) -> None:
    """Print a row per measure before and after a reranker, and what it costs."""
    reranked = result.reranked
    assert reranked is not None
    screen.heading(f"{title}; {reranker} sorts the best {reranked.depth} again")
    searches = {"first stage": result.measures, "reranked": reranked.measures}
    _print_changes(screen, searches, reranked.changes)
    queries, seconds = len(reranked.query_ids), reranked.seconds_per_query
    time = "scores from the cache" if seconds is None else f"{seconds:.3g} seconds per query"
    screen.lines(
        f"the reranker read {counted(reranked.pairs, 'pair')}, "
        f"{reranked.pairs / queries:.3g} per query: {time}",
        few_queries(queries, result.split),
    )


def print_reranker_run(screen: Screen, run: RerankerRun) -> None:
    """Print whether a trained reranker is better than its first stage, and how to use it."""
    record = run.record
    screen.heading(f"{run.headline}.")
    if record.new_head:
        screen.lines(f"{record.model} had no head of a reranker, so there is no base reranker.")
    else:
        base = record.measures["base"][PRIMARY], record.measures["final"][PRIMARY]
        change = record.changes_from_base[PRIMARY].in_points()
        before, after = map(in_points, base)
        screen.lines(f"Base reranker to final: {PRIMARY} {before} → {after}, {change}.")
    rate = record.settings["learning_rate"]
    screen.heading(f"\n{record.method}, {record.steps} steps, learning rate {rate:g}")
    names = {"first stage": "first_stage", "base": "base", "final": "final"}
    searches = {
        heading: {measure: record.measures[name][measure] for measure in DEFAULT_MEASURES}
        for heading, name in names.items()
        if name in record.measures
    }
    _print_changes(screen, searches, record.changes)
    screen.lines(few_queries(record.data.counts.get("test_queries", 0)))
    if record.noisy_labels is not None:
        screen.lines(f"{list_sentence(record.noisy_labels, run.path)}.")
    screen.lines(
        "\nfrom sentence_transformers import CrossEncoder",
        f"model = CrossEncoder({str(run.model_path)!r})",
    )
    screen.heading("\nNext:")
    screen.commands(command_line("evaluate", "DATA", "--reranker", run.path, "--depth", "30"))


def _print_changes(
    screen: Screen, searches: Mapping[str, Mapping[str, float]], changes: Mapping[str, Change]
) -> None:
    """Print a row per measure: the mean of each search, and the change from the first to the last
    search.
    """
    rows = [
        (
            measure,
            *(in_points(means[measure]) for means in searches.values()),
            *changes[measure].cells(),
        )
        for measure in next(iter(searches.values()))
    ]
    screen.table(("measure", *searches, "points", "95% interval of the points"), rows)
