"""What ``opera train`` and ``opera quickstart`` print of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opera.cli.screen import Screen, flat
from opera.config.trainer import PRIMARY
from opera.core.intervals import few_queries, points
from opera.core.terminal import counted, place

if TYPE_CHECKING:
    from opera.runs.folder import Run
    from opera.runs.record import NoisyLabelsRecord

MANY, TRY = 0.05, "; --method denoise trains less on such pairs"
"""If the noise rate is surely higher than this, the method against wrong labels is advised."""
TESTED = (
    "If the test split has such labels too, the figures are too low: correct them with "
    "opera review {} --split test."
)


def print_before_after(screen: Screen, run: Run) -> None:
    """Print the verdict, how the final model was chosen, what looks wrong with the labels, and the
    measures on test before and after.

    The fine-tuned model is left out if it is the final one.
    """
    from opera.retrieval.measures import DEFAULT_MEASURES
    from opera.runs.changes import changes_on_test
    from opera.runs.verdict import headlines, warnings_of

    measures, per_query, guard = run.measures, run.per_query(), run.record.guard
    names = list(DEFAULT_MEASURES)
    verdict, final_model = headlines(run)
    screen.heading(verdict)
    screen.lines(final_model)
    if guard is not None:
        names = list(dict.fromkeys([*names, guard.measure]))
        screen.lines(*warnings_of(guard))
    print_labels(screen, run)
    shown = {"base": "base", "fine_tuned": "fine-tuned", "final": "final"}
    if measures["fine_tuned"] == measures["final"]:
        del shown["fine_tuned"]
    changes = changes_on_test(per_query, names)
    rates = "learning rate {learning_rate:g}, temperature {temperature:g}".format(**run.settings)
    queries = counted(per_query.num_rows, "test query")
    screen.heading(f"\n{run.settings['method']}, {run.steps} steps, {rates}; {queries}")
    screen.table(
        ("measure", *shown.values(), "points", "95% interval"),
        [
            (
                name,
                *(f"{measures[when][name]:.4f}" for when in shown),
                points(measures["final"][name] - measures["base"][name]),
                changes[name].interval_in_points() if name in changes else "",
            )
            for name in names
        ],
    )
    screen.lines(few_queries(per_query.num_rows))


def print_labels(screen: Screen, run: Run, compared: bool = False) -> None:
    """Print how many training pairs look wrong, where they are listed, and what to try, if methods
    are not ``compared`` already.
    """
    from opera.runs.folder import SUSPICIOUS_FILE

    if (estimate := run.record.noisy_labels) is not None:
        advised = compared or run.settings["method"] == "denoise" or estimate.low < MANY
        advice = "" if advised else TRY
        screen.lines(f"{labels_sentence(estimate, str(run.path / SUSPICIOUS_FILE))}{advice}.")
        noisy = estimate.low >= MANY or run.settings["decisions"] is not None
        screen.lines(TESTED.format(run.path) if noisy else None)


def print_cutoffs(screen: Screen, run: Run) -> None:
    """Print the cut-off for the middle precision, if one reaches it."""
    from opera.runs.cutoffs import PRECISIONS

    record = run.record.cutoffs
    if record is not None and (cutoff := record.cutoff(PRECISIONS[1])) is not None:
        screen.lines(f"\n{cutoff.sentence}")


def labels_sentence(estimate: NoisyLabelsRecord, listed: str) -> str:
    """Say how many training pairs look wrong, and which file lists them."""
    sentence = estimate.sentence[0].upper() + estimate.sentence[1:]
    return f"{sentence}; {listed} lists {estimate.suspicious:,}, the worst first"


def print_parts(screen: Screen, run: Run) -> None:
    """Print the main measure at each number of first dimensions, and on each of several data
    sets.
    """
    from opera.runs.record import mean_of_sets

    if sizes := run.record.matryoshka:
        by_size = {str(s.size): {"base": s.base, "final": s.final} for s in sizes}
        screen.heading(f"\n{PRIMARY} of the first dimensions alone")
        screen.table(
            ("dimensions", "base", "final", "points"),
            [(size, *_change(test)) for size, test in {"all": run.measures, **by_size}.items()],
            words=0,
        )
    if sets := run.record.sets:
        rows = [
            (
                flat(part.name),
                "" if part.share_of_draws is None else f"{part.share_of_draws:.1%}",
                str(part.counts.get("test_queries", 0)),
                *_change(part.test),
            )
            for part in sets
        ]
        rows.append(("mean of the sets", "", "", *_change(mean_of_sets(sets))))
        heads = ("data set", "drawn", "test queries", "base", "final", "points")
        screen.heading(f"\n{PRIMARY} on the test queries of each data set")
        screen.table(heads, rows)


def _change(test: Mapping[str, Mapping[str, float]] | None) -> tuple[str, str, str]:
    """Write the main measure before and after, and its change in points, as cells."""
    if test is None:
        return ("", "", "")
    base, final = test["base"][PRIMARY], test["final"][PRIMARY]
    return f"{base:.4f}", f"{final:.4f}", points(final - base)


def print_next(screen: Screen, run: Run, grid: Path | None = None) -> None:
    """Print what to do with a finished run, or with the best run of a grid."""
    steps = [
        ("opera review {run}", "decide which labels are wrong or missing, and train again"),
        ('opera search {run} "your question"', "try the final model"),
        ("opera report {report}", "one page: verdict, figures, queries that changed"),
    ]
    if run.settings["query_vectors"] is not None:
        del steps[1]  # no model embeds a question
    names = {"run": place(run.path), "report": place(grid or run.path)}
    commands = [command.format(**names) for command, _ in steps]
    width = max(map(len, commands))
    screen.heading("\nNext:")
    for command, (_, what) in zip(commands, steps, strict=True):
        screen.lines(f"  {command:{width}}  {what}")


def how_to_use(run: Run) -> str:
    """Return the lines of Python that load what a run handed over."""
    if run.settings["query_vectors"] is not None:
        return (
            f"import opera.adapter\nadapter = opera.adapter.load({str(run.path)!r})\n"
            "queries = adapter.queries(vectors)"
        )
    stays = "\n# documents keep their embeddings: an index of them stays valid"
    return (
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(run.model_path)!r})\n"
        'embeddings = model.encode_query(["your question"])'
        + (stays if run.settings["adapter"] == "query" else "")
    )
