"""``opera inspect``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.cli.options import (
    Answer,
    DataArgument,
    ModelOption,
    Prompts,
    RelevantOption,
    SeedOption,
    Tables,
    load_training_data,
)
from opera.cli.screen import Screen, flat, number_of
from opera.core.arguments import MOST
from opera.core.intervals import few_queries, signed

if TYPE_CHECKING:
    from opera.diagnostics.duplicates import Duplicates, NearDuplicate
    from opera.diagnostics.inspect import Inspection

BARS = " ▁▂▃▄▅▆▇█"
SHOWN_DUPLICATES = 3
SEEN = (
    (0.9, "it asks new questions about known documents; fine-tuning is mostly safe"),
    (0.5, "some documents are new and fine-tuning may not carry over to them"),
    (0.25, "most documents are new and fine-tuning may not carry over to them"),
    (1e-9, "most documents are new and fine-tuning can make retrieval worse"),
    (0.0, "all documents are new and fine-tuning can make retrieval worse"),
)
"""What a split asks about, from which share of documents on that train names."""


def inspect(
    *,
    data: DataArgument = None,
    model: ModelOption,
    show: Annotated[
        int, typer.Option("--show", help="how many suspicious pairs to show", min=0, max=MOST)
    ] = 10,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    prompts: Prompts,
    tables: Tables,
) -> Answer:
    """Analyse a data set before training: sizes, noise, duplicates, leaks, suspicious pairs.
    Suggests a method.
    """
    loaded = load_training_data(tables(data), model)

    from opera.diagnostics.inspect import inspect as inspect_data

    asked: dict[str, Any] = {"show": show, "seed": seed, "relevant_grade": relevant_grade}
    seen = inspect_data(loaded, model=model, **asked, **prompts)
    return Answer(seen.as_dict, partial(print_inspection, inspection=seen))


def print_inspection(screen: Screen, inspection: Inspection) -> None:
    """Print everything, the advice first."""
    from opera.data.names import source_title

    advice, counts = inspection.advice, inspection.counts
    screen.heading(f"{source_title(inspection.source)} with {inspection.model}\n\nAdvice")
    screen.lines(f"--method {advice.method}, the default")
    if advice.if_labels_false is not None:
        retention = "" if advice.k is None else f" --set k={advice.k:g}"
        other = f"--method {advice.if_labels_false}{retention}"
        screen.lines(f"{other}, if the suspicious pairs are false")
    screen.lines(*(f"- {reason}" for reason in advice.reasons))
    screen.heading("\nCounts")
    screen.lines(", ".join(number_of(count, name) for name, count in counts.items()))
    for name, grades in inspection.grades.items():
        by_grade = ", ".join(f"{count:,} with grade {grade}" for grade, count in grades.items())
        screen.lines(f"{name} judgements: {by_grade}")
    screen.lines(
        _positives_sentence(inspection),
        few_queries(counts["test_queries"]) if "test_queries" in counts else None,
        *(f"note: {note}" for note in inspection.notes),
    )
    if inspection.seen:
        screen.heading("\nHow new are the documents?")
        screen.lines(*(seen_sentence(split, seen) for split, seen in inspection.seen.items()))
        screen.lines("docs/when-fine-tuning-hurts.md says what follows from this.", style="dim")
    _print_similarities(screen, inspection)
    _print_retentions(screen, inspection)
    _print_duplicates(screen, inspection)
    if inspection.suspicious:
        screen.heading("\nThe most suspicious training pairs")
    for pair in inspection.suspicious:
        screen.lines(
            f"{flat(pair.query_id)} – {flat(pair.doc_id)}: similarity {pair.similarity:.3f}, "
            f"{pair.closer_random_share:.1%} of random documents are closer"
        )
        screen.cut(*(f"    {flat(text)}" for text in (pair.query, pair.document)), style="dim")


def _positives_sentence(inspection: Inspection) -> str:
    positives = inspection.positives_per_query
    names = ("minimum", "25%", "median", "75%", "maximum")
    values = zip(names, positives.quantiles, strict=True)
    listed = ", ".join(f"{name} {value:g}" for name, value in values)
    return (
        f"positives per query: mean {positives.mean:.1f}; {listed}; "
        f"{positives.single_positive_share:.0%} of the queries have one. The most common document "
        f"is in {number_of(positives.most_common_document_pairs, 'pairs')}."
    )


def histogram(shares: Sequence[float], highest: float) -> str:
    """Draw shares as one line of bars; ``highest`` is a full bar, and every share above 0 is
    visible.
    """
    most = len(BARS) - 1
    return "".join(BARS[max(share > 0, round(share / highest * most))] for share in shares)


def seen_sentence(split: str, seen: float) -> str:
    """Say how many of a split's documents train names, a share, and what that means."""
    known, *_ = (words for least, words in SEEN if seen >= least)
    drawn = "; without a dev split of your own, opera train draws one like it"
    more = drawn if split != "dev" and seen < SEEN[0][0] else ""
    return (
        f"{split}: train names the document of {seen:.0%} of the relevant pairs, so {known}{more}."
    )


def _print_similarities(screen: Screen, inspection: Inspection) -> None:
    found, quality = inspection.similarities, inspection.quality
    highest = max(*found.labelled_counts, *found.random_counts)
    kinds = (
        ("training pairs", found.labelled, found.labelled_counts),
        ("random pairs", found.random, found.random_counts),
    )
    quantiles = ("minimum", "5%", "25%", "median", "75%", "95%", "maximum")
    screen.heading("\nSimilarity of query and document")
    screen.table(
        ("", *quantiles, f"from {found.edges[0]:.2f} to {found.edges[-1]:.2f}"),
        [
            (name, *(f"{value:.3f}" for value in values), histogram(shares, highest))
            for name, values, shares in kinds
        ],
    )
    noise = "These are too few to estimate noise."
    if quality.noise is not None:
        noise = (
            f"Estimated noise: {quality.noise:.1%} ± {quality.noise_error:.1%} of the pairs have a "
            "document that scores no better than a random one. These are false labels, or "
            "relevance that this model does not see. False labels close to the query are not "
            "counted.\nAcross queries: a pair that is not noise is more similar than a random pair "
            f"of any query and document with probability {quality.pooled_auc:.3f}. The single "
            "threshold of static pruning depends on this."
        )
    screen.lines(
        "Within a query: its labelled document is closer than a random one with probability "
        f"{quality.auc:.3f} (AUC). Each was ranked among at least {quality.pool:,} positives of "
        "other queries.",
        noise,
    )


def _print_retentions(screen: Screen, inspection: Inspection) -> None:
    screen.heading("\nWhat static pruning (methods sp, sp+cbs) would keep")
    screen.table(
        ("share kept (k)", "pairs", "queries lost", "lowest similarity", "true pairs", "gain"),
        [
            (
                f"{row.k:g}",
                f"{row.kept_pairs:,}",
                f"{row.lost_queries:.1%}",
                f"{row.lowest:.3f}",
                f"{row.precision:.3f}",
                signed(row.gain, 4),
            )
            for row in inspection.retentions
        ],
        words=0,
    )
    screen.lines(
        "True pairs: their estimated share among those kept. Gain: estimated change of the "
        "similarity that training\nlearns from, beside training on all pairs (E of Theorem 1, "
        "docs/paper.md). Both assume that the estimated\nnoise is random. For comparison: "
        f"{inspection.quality.true_share:.3f} of all pairs are true, and dp gains "
        f"{signed(inspection.dynamic_gain, 4)}.",
        "The gain ignores coverage: weigh it against the lost queries.",
    )


def _print_duplicates(screen: Screen, inspection: Inspection) -> None:
    screen.heading("\nNear-duplicates (80% of the words shared)")
    for name, found in (("documents", inspection.documents), ("queries", inspection.queries)):
        screen.lines(f"{name}: {_duplicates_in_words(found)}")
        _print_examples(screen, found.examples)
    for split, leak in inspection.leaks.items():
        screen.lines(
            f"{split} in train: {leak.leaked_queries:,} of {leak.queries:,} {split} queries have a "
            f"near-identical training query; for {leak.leaked_pairs:,} of {leak.pairs:,} pairs it "
            f"has the same relevant document. {leak.shared_documents:,} of {leak.documents:,} "
            "relevant documents are also relevant in train."
        )
        _print_examples(screen, leak.examples)
    if not inspection.leaks:
        only = "There is no split but train"
        screen.lines(f"{only}: opera train draws test and dev from it, as --future says.")


def _duplicates_in_words(duplicates: Duplicates) -> str:
    sample = " randomly chosen ones" if duplicates.checked < duplicates.total else ""
    return (
        f"{duplicates.near_duplicates:,} of {duplicates.checked:,}{sample} have one; "
        f"{duplicates.copies:,} of {duplicates.total:,} are exact copies of another"
    )


def _print_examples(screen: Screen, examples: Sequence[NearDuplicate]) -> None:
    for each in examples[:SHOWN_DUPLICATES]:
        both = ((each.id, each.text), (each.duplicate_id, each.duplicate_text))
        screen.cut(*(f"    {flat(name)}: {flat(text)}" for name, text in both), style="dim")
        screen.lines("")
