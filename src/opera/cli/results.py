"""The results of a run, as ``opera train`` and ``opera quickstart`` print them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from opera.cli.screen import Screen, flat
from opera.core.figures import PRIMARY, few_queries, in_points, points
from opera.run_folder.folder import Run

NOISY = 0.05
"""OPERA gives advice about noisy labels if the interval of the noise rate lies above this."""


def print_before_after(screen: Screen, run: Run) -> None:
    """Print the verdict, the final model's weights, how many labels look wrong, and the measures
    on test.

    The table has no column for the fine-tuned model if that is the final model.
    """
    from opera.experiments.report.tables import measures_table
    from opera.run_folder.verdict import warnings_of

    guard, (verdict, *details) = run.record.guard, run.headlines
    screen.heading(verdict)
    screen.lines(*details, *(() if guard is None else warnings_of(guard)))
    print_labels(screen, run)
    rates = "learning rate {learning_rate:g}, temperature {temperature:g}".format(**run.settings)
    screen.heading(f"\n{run.settings['method']}, {run.steps} steps, {rates}")
    screen.report_table(measures_table(run))
    screen.lines(few_queries(run.summary.queries))


def print_labels(screen: Screen, run: Run) -> None:
    """Print how many training pairs look wrong, and which file lists them.

    Recommend ``denoise`` if the labels are noisy.
    """
    from opera.run_folder.folder import SUSPICIOUS_FILE
    from opera.run_folder.verdict import labels_sentence

    if (estimate := run.record.noisy_labels) is not None:
        is_noisy = estimate.low >= NOISY
        advises = is_noisy and run.settings["method"] != "denoise"
        advice = "; --method denoise trains less on such pairs" if advises else ""
        pair_list = f"{run.path / SUSPICIOUS_FILE} lists {estimate.suspicious:,}, the worst first"
        screen.lines(f"{labels_sentence(estimate)}; {pair_list}{advice}.")
        if is_noisy or run.settings["decisions"] is not None:
            screen.lines(
                "If the test split is as noisy, the reported scores are too low: correct its "
                f"labels with opera review {run.path} --split test."
            )


def print_parts(screen: Screen, run: Run) -> None:
    """Print the main measure by number of dimensions and by data set, if a run has several."""
    from opera.run_folder.record import mean_of_sets

    if sizes := run.record.matryoshka:
        by_size = {str(s.size): {"base": s.base, "final": s.final} for s in sizes}
        screen.heading(f"\n{PRIMARY} with the first dimensions only")
        screen.table(
            ("dimensions", "base", "final", "points"),
            [(size, *_change(test)) for size, test in {"all": run.measures, **by_size}.items()],
            words=0,
        )
    if sets := run.record.sets:
        rows = [
            (
                flat(data_set.name),
                "" if data_set.share_of_draws is None else f"{data_set.share_of_draws:.1%}",
                str(data_set.counts.get("test_queries", 0)),
                *_change(data_set.test),
            )
            for data_set in sets
        ]
        heads = ("data set", "sampled", "test queries", "base", "final", "points")
        screen.heading(f"\n{PRIMARY} on the test queries of each data set")
        screen.table(heads, [*rows, ("mean of the sets", "", "", *_change(mean_of_sets(sets)))])


def _change(test: Mapping[str, Mapping[str, float]] | None) -> tuple[str, str, str]:
    """Return the main measure of both models, and the change in points, as cells of a table."""
    if test is None:
        return ("", "", "")
    base, final = test["base"][PRIMARY], test["final"][PRIMARY]
    return in_points(base), in_points(final), points(final - base)


def print_next(screen: Screen, run: Run, grid: Path | None = None) -> None:
    """Print the commands that come next after a run, or for the best run of a grid."""
    commands, keywords = run.summary.next_commands(grid), run.record.keywords
    fuses = keywords is not None and any(keywords.weights.values())
    purposes = {
        "review": "decide which labels are wrong or missing, and train again",
        "search": "search with the final model" + " and BM25" * fuses,
        "report": "write a page: verdict, measures, queries that changed",
    }
    width = max(map(len, commands.values()))
    screen.heading("\nNext:")
    screen.lines(*(f"  {command:{width}}  {purposes[name]}" for name, command in commands.items()))


def how_to_use(run: Run) -> str:
    """Return the lines of Python that load the final model."""
    if run.settings["query_vectors"] is not None:
        return (
            f"import adapter  # {run.model_path / 'adapter.py'}; copy it with adapter.npz\n"
            "queries = adapter.queries(vectors)"
        )
    index_note = "\n# document embeddings are unchanged: an existing index stays valid"
    return (
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(run.model_path)!r})\n"
        'embeddings = model.encode_query(["your question"])'
        + (index_note if run.settings["adapter"] == "query" else "")
    )
