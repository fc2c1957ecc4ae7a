"""Tables of a run or an evaluation, and the documents of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from opera.cli.printing.console import one_line, table_of
from opera.config.trainer import PRIMARY
from opera.core.intervals import few_queries, points
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.changes import changes_on_test
from opera.runs.guard_words import dev_sentence, share_sentence, verdict_sentence, warnings_of
from opera.runs.record import mean_of_sets

if TYPE_CHECKING:
    from opera.retrieval.search import FoundDocument
    from opera.runs.folder import Run
    from opera.runs.record import GuardRecord


def print_before_after(screen: Console, run: Run, title: str) -> None:
    """Print the main measures of a run on test, and the one that chose λ: before, fine-tuned,
    after, and the gain in points with its interval.

    The fine-tuned model is left out where it is the one handed over. Few test queries are warned
    of.
    """
    measures, per_query, guard = run.measures, run.per_query(), run.record.guard
    names = list(dict.fromkeys([*DEFAULT_MEASURES, *([] if guard is None else [guard.measure])]))
    changes = changes_on_test(per_query, names)
    shown = {"before": "before", "fine_tuned": "fine-tuned", "after": "after"}
    if measures["fine_tuned"] == measures["after"]:
        del shown["fine_tuned"]
    rows = []
    for name in names:
        gain, change = measures["after"][name] - measures["before"][name], changes.get(name)
        interval = "" if change is None else interval_in_points(change.low, change.high)
        rows.append(
            (name, *(f"{measures[when][name]:.4f}" for when in shown), points(gain), interval)
        )
    screen.print(Text(f"\n{title}", style="bold"))
    screen.print(table_of(("measure", *shown.values(), "points", "95% interval"), rows))
    warn_of_few(screen, per_query.num_rows)


def interval_in_points(low: float, high: float) -> str:
    """Write the interval of a difference for a table: ``+0.3 to +2.1``."""
    return f"{points(low)} to {points(high)}"


def warn_of_few(screen: Console, queries: int, split: str = "test") -> None:
    """Print a warning where a split has few queries."""
    if warning := few_queries(queries, split):
        screen.print(Text(warning))


def print_guard(screen: Console, guard: GuardRecord) -> None:
    """Print the verdict, what the model handed over is made of, what it was chosen on, and reasons
    for doubt.
    """
    screen.print(Text(verdict_sentence(guard), style="bold"))
    for sentence in (share_sentence(guard), dev_sentence(guard), *warnings_of(guard)):
        screen.print(Text(sentence))


def format_rates(settings: Mapping[str, Any]) -> str:
    """The learning rate and the temperature of a run, for a title."""
    return f"learning rate {settings['learning_rate']:g}, temperature {settings['temperature']:g}"


def print_measures(
    screen: Console,
    values: Mapping[str, float],
    title: str,
    head: str = "measure",
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Print the measures of one evaluation with their intervals, or other named values under their
    ``head``.
    """
    found = (
        {}
        if intervals is None
        else {name: ("{:.4f} to {:.4f}".format(*intervals[name]),) for name in values}
    )
    rows = [(name, f"{value:.4f}", *found.get(name, ())) for name, value in values.items()]
    screen.print(Text(title, style="bold"))
    screen.print(table_of((head, "value", *(("95% interval",) if found else ())), rows))


def print_sizes(screen: Console, run: Run) -> None:
    """Print a measure of a run at each number of first dimensions; nothing for a run without
    sizes.
    """
    if sizes := run.record.matryoshka:
        measured = [
            ("all", run.measures),
            *((str(s.size), {"before": s.before, "after": s.after}) for s in sizes),
        ]
        rows = [(size, *_change_cells(test)) for size, test in measured]
        screen.print(Text(f"\n{PRIMARY} of the first dimensions alone", style="bold"))
        screen.print(table_of(("dimensions", "before", "after", "points"), rows, words=0))


def print_sets(screen: Console, run: Run) -> None:
    """Print a measure of a run on each of several data sets, before and after; nothing for a run on
    one.
    """
    sets = run.record.sets
    if not sets:
        return
    rows = []
    for each in sets:
        drawn = "" if each.share_of_draws is None else f"{each.share_of_draws:.1%}"
        queries = str(each.counts.get("test_queries", 0))
        rows.append((one_line(each.name), drawn, queries, *_change_cells(each.test)))
    rows.append(("mean of the sets", "", "", *_change_cells(mean_of_sets(sets))))
    screen.print(Text(f"\n{PRIMARY} on the test queries of each data set", style="bold"))
    screen.print(table_of(("data set", "drawn", "test queries", "before", "after", "points"), rows))


def _change_cells(test: Mapping[str, Mapping[str, float]] | None) -> tuple[str, str, str]:
    """Write a measure before and after, and its change in points, as cells of a table."""
    if test is None:
        return ("", "", "")
    before, after = test["before"][PRIMARY], test["after"][PRIMARY]
    return f"{before:.4f}", f"{after:.4f}", points(after - before)


def print_search(screen: Console, documents: Sequence[FoundDocument], title: str) -> None:
    """Print the documents of a search, best first, two lines each."""
    screen.print(Text(title, style="bold"))
    for document in documents:
        print_document(
            screen,
            f"  {document.rank}.  {document.score:.3f}  {one_line(document.id)}",
            document.text,
        )


def print_document(screen: Console, heading: str, text: str) -> None:
    """Print a heading and a document's text, each cut to one line."""
    screen.print(Text(heading), overflow="ellipsis", no_wrap=True)
    screen.print(Text(f"       {one_line(text)}", style="dim"), overflow="ellipsis", no_wrap=True)


def how_to_use(run: Run) -> str:
    """Return the lines of Python that load what a run handed over."""
    if run.settings["query_vectors"] is not None:
        return (
            f"import opera.adapter\nadapter = opera.adapter.load({str(run.path)!r})\n"
            "queries = adapter.queries(vectors)"
        )
    if run.settings["adapter"] == "query":
        kept = "# documents keep their embeddings: an index of them stays valid"
        return f"{how_to_load(str(run.model_path))}\n{kept}"
    return how_to_load(str(run.model_path))


def how_to_load(folder: str) -> str:
    """Return the three lines of Python that load a model."""
    return (
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({folder!r})\n"
        'embeddings = model.encode_query(["your question"])'
    )
