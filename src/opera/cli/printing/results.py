"""Tables of a run or an evaluation, and the documents of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import one_line
from opera.core.intervals import few_queries, points
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.changes import changes_on_test
from opera.runs.guard_words import dev_sentence, share_sentence, verdict_sentence, warnings_of

if TYPE_CHECKING:
    from opera.retrieval.one_query import FoundDocument
    from opera.runs.folder import Run
    from opera.runs.record import GuardRecord


def print_before_after(screen: Console, run: Run, title: str) -> None:
    """Print the main measures of a run on test: before, fine-tuned, after, and the gain in points with its interval.

    The fine-tuned model is left out where it is the one handed over. Few test queries are warned of.
    """
    measures, per_query = run.measures, run.per_query()
    changes = changes_on_test(per_query, DEFAULT_MEASURES)
    shown = {"before": "before", "fine_tuned": "fine-tuned", "after": "after"}
    if measures["fine_tuned"] == measures["after"]:
        del shown["fine_tuned"]
    table = Table()
    table.add_column("measure")
    for column in (*shown.values(), "points", "95% interval"):
        table.add_column(column, justify="right")
    for name in DEFAULT_MEASURES:
        gain, change = measures["after"][name] - measures["before"][name], changes.get(name)
        interval = "" if change is None else interval_in_points(change.low, change.high)
        table.add_row(name, *(f"{measures[when][name]:.4f}" for when in shown), points(gain), interval)
    screen.print(Text(f"\n{title}", style="bold"))
    screen.print(table)
    warn_of_few(screen, per_query.num_rows)


def interval_in_points(low: float, high: float) -> str:
    """Write the interval of a difference for a table: ``+0.3 to +2.1``."""
    return f"{points(low)} to {points(high)}"


def warn_of_few(screen: Console, queries: int, split: str = "test") -> None:
    """Print a warning where a split has few queries."""
    if warning := few_queries(queries, split):
        screen.print(Text(warning))


def print_guard(screen: Console, guard: GuardRecord) -> None:
    """Print the verdict, what the model handed over is made of, what it was chosen on, and reasons for doubt."""
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
    """Print the measures of one evaluation with their intervals, or other named values under their ``head``."""
    table = Table()
    table.add_column(head)
    for column in ("value", *(() if intervals is None else ("95% interval",))):
        table.add_column(column, justify="right")
    for name, value in values.items():
        table.add_row(
            name, f"{value:.4f}", *(() if intervals is None else ("{:.4f} to {:.4f}".format(*intervals[name]),))
        )
    screen.print(Text(title, style="bold"))
    screen.print(table)


def print_search(screen: Console, documents: Sequence[FoundDocument], title: str) -> None:
    """Print the documents of a search, best first, two lines each."""
    screen.print(Text(title, style="bold"))
    for document in documents:
        print_document(screen, f"  {document.rank}.  {document.score:.3f}  {one_line(document.id)}", document.text)


def print_document(screen: Console, heading: str, text: str) -> None:
    """Print a heading and a document's text, each cut to one line."""
    screen.print(Text(heading), overflow="ellipsis", no_wrap=True)
    screen.print(Text(f"       {one_line(text)}", style="dim"), overflow="ellipsis", no_wrap=True)


def how_to_use(run: Run) -> str:
    """Return the lines of Python that load what a run handed over."""
    if run.settings["query_vectors"] is not None:
        return (
            f"import opera.adapter\nadapter = opera.adapter.load({str(run.path)!r})\nqueries = adapter.queries(vectors)"
        )
    if run.settings["adapter"] == "query":
        return f"{how_to_load(str(run.model_path))}\n# documents keep their embeddings: an index of them stays valid"
    return how_to_load(str(run.model_path))


def how_to_load(folder: str) -> str:
    """Return the three lines of Python that load a model."""
    return (
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({folder!r})\n"
        'embeddings = model.encode_query(["your question"])'
    )
