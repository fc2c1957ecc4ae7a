"""Print an inspection as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from opera.cli.printing.console import one_line, table_of
from opera.cli.printing.results import warn_of_few
from opera.core.intervals import signed
from opera.data.names import source_title
from opera.diagnostics.duplicates import Duplicates, NearDuplicate
from opera.diagnostics.inspect import Inspection
from opera.diagnostics.quality import Quality

BARS = " ▁▂▃▄▅▆▇█"
SHOWN_DUPLICATES = 3
MOSTLY_SEEN, MOSTLY_NEW = 0.9, 0.25
"""A split asks about known documents from this seen share on; about new ones below that."""


def print_inspection(screen: Console, inspection: Inspection) -> None:
    """Print everything, the advice first."""
    screen.print(Text(f"{source_title(inspection.source)} with {inspection.model}\n", style="bold"))
    _print_advice(screen, inspection)
    _print_counts(screen, inspection)
    _print_seen(screen, inspection)
    _print_similarities(screen, inspection)
    _print_retentions(screen, inspection)
    _print_duplicates(screen, inspection)
    _print_suspicious(screen, inspection)


def histogram(shares: Sequence[float], highest: float) -> str:
    """Draw shares as one line of bars; ``highest`` is a full bar, and every share above 0 is
    visible.
    """
    levels = [
        0 if share == 0 else max(1, round(share / highest * (len(BARS) - 1))) for share in shares
    ]
    return "".join(BARS[level] for level in levels)


def _print_counts(screen: Console, inspection: Inspection) -> None:
    screen.print(Text("\nCounts", style="bold"))
    counts = inspection.counts.items()
    screen.print(Text(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts)))
    for name, grades in inspection.grades.items():
        by_grade = ", ".join(f"{count:,} with grade {grade}" for grade, count in grades.items())
        screen.print(Text(f"{name} judgements: {by_grade}"))
    positives = inspection.positives_per_query
    minimum, quarter, median, three_quarters, maximum = (
        f"{value:g}" for value in positives.quantiles
    )
    screen.print(
        Text(
            f"positives per query: mean {positives.mean:.1f}; minimum {minimum}, 25% {quarter}, "
            f"median {median}, "
            f"75% {three_quarters}, maximum {maximum}; {positives.single_positive_share:.0%} of "
            "the queries have one. "
            f"The most common document is in {positives.most_common_document_pairs:,} pairs."
        )
    )
    if "test_queries" in inspection.counts:
        warn_of_few(screen, inspection.counts["test_queries"])
    for note in inspection.notes:
        screen.print(Text(f"note: {note}"))


def _print_seen(screen: Console, inspection: Inspection) -> None:
    if not inspection.seen:
        return
    screen.print(Text("\nHow new are the documents?", style="bold"))
    for split, seen in inspection.seen.items():
        screen.print(Text(seen_sentence(split, seen)))
    screen.print(Text("docs/when-fine-tuning-hurts.md says what follows from this.", style="dim"))


def seen_sentence(split: str, seen: float) -> str:
    """Say how many of a split's documents train names, and what that means.

    Args:
        split: its name.
        seen: share of its relevant pairs whose document train names, 0 to 1.
    """
    named = f"{split}: train names the document of {seen:.0%} of the relevant pairs, so"
    if seen >= MOSTLY_SEEN:
        return f"{named} it asks new questions about known documents; fine-tuning is mostly safe."
    new = (
        "all documents are new"
        if seen == 0
        else "most documents are new"
        if seen < 0.5
        else "some documents are new"
    )
    harm = (
        "fine-tuning may not carry over to them"
        if seen >= MOSTLY_NEW
        else "fine-tuning can make retrieval worse"
    )
    dev = (
        "" if split == "dev" else "; without a dev split of your own, opera train draws one like it"
    )
    return f"{named} {new} and {harm}{dev}."


def _print_similarities(screen: Console, inspection: Inspection) -> None:
    similarities, quality = inspection.similarities, inspection.quality
    highest = max(*similarities.labelled_counts, *similarities.random_counts)
    screen.print(Text("\nSimilarity of query and document", style="bold"))
    heads = ("", "minimum", "5%", "25%", "median", "75%", "95%", "maximum")
    rows = [
        (name, *(f"{value:.3f}" for value in values), histogram(shares, highest))
        for name, values, shares in (
            ("training pairs", similarities.labelled, similarities.labelled_counts),
            ("random pairs", similarities.random, similarities.random_counts),
        )
    ]
    screen.print(
        table_of(
            (*heads, f"from {similarities.edges[0]:.2f} to {similarities.edges[-1]:.2f}"), rows
        )
    )
    screen.print(
        Text(
            "Within a query: its labelled document is closer than a random one with probability "
            f"{quality.auc:.3f} "
            f"(AUC). Each was ranked among at least {quality.pool:,} positives of other queries.\n"
            f"{_noise_in_words(quality)}"
        )
    )


def _noise_in_words(quality: Quality) -> str:
    if quality.noise is None:
        return "These are too few to estimate noise."
    return (
        f"Estimated noise: {quality.noise:.1%} ± {quality.noise_error:.1%} of the pairs have a "
        "document that scores no "
        "better than a random one. These are false labels, or relevance that this model does not "
        "see. False labels "
        "close to the query are not counted.\n"
        "Across queries: a pair that is not noise is more similar than a random pair of any query "
        "and document with "
        f"probability {quality.pooled_auc:.3f}. The single threshold of static pruning depends on "
        "this."
    )


def _print_retentions(screen: Console, inspection: Inspection) -> None:
    screen.print(Text("\nWhat static pruning (methods sp, sp+cbs) would keep", style="bold"))
    heads = ("share kept (k)", "pairs", "queries lost", "lowest similarity", "true pairs", "gain")
    rows = []
    for row in inspection.retentions:
        cells = (
            f"{row.kept_pairs:,}",
            f"{row.lost_queries:.1%}",
            f"{row.lowest:.3f}",
            f"{row.precision:.3f}",
        )
        rows.append((f"{row.k:g}", *cells, signed(row.gain, 4)))
    screen.print(table_of(heads, rows, words=0))
    screen.print(
        Text(
            "True pairs: their estimated share among those kept. Gain: estimated change of the "
            "similarity that "
            "training\nlearns from, beside training on all pairs (E of Theorem 1, docs/paper.md). "
            "Both assume that the "
            f"estimated\nnoise is random. For comparison: {inspection.quality.true_share:.3f} of "
            "all pairs are true, "
            f"and dp gains {signed(inspection.dynamic_gain, 4)}.\n"
            "The gain ignores coverage: weigh it against the lost queries."
        )
    )


def _print_duplicates(screen: Console, inspection: Inspection) -> None:
    screen.print(Text("\nNear-duplicates (80% of the words shared)", style="bold"))
    for name, duplicates in (("documents", inspection.documents), ("queries", inspection.queries)):
        screen.print(Text(f"{name}: {_duplicates_in_words(duplicates)}"))
        _print_examples(screen, duplicates.examples)
    for split, leak in inspection.leaks.items():
        screen.print(
            Text(
                f"{split} in train: {leak.leaked_queries:,} of {leak.queries:,} {split} queries "
                "have a near-identical "
                f"training query; for {leak.leaked_pairs:,} of {leak.pairs:,} pairs it has the "
                "same relevant "
                f"document. {leak.shared_documents:,} of {leak.documents:,} relevant documents are "
                "also "
                "relevant in train."
            )
        )
        _print_examples(screen, leak.examples)
    if not inspection.leaks:
        screen.print(
            Text(
                "There is no split but train: opera train draws test and dev from it, as --future "
                "says."
            )
        )


def _duplicates_in_words(duplicates: Duplicates) -> str:
    sample = " randomly chosen ones" if duplicates.checked < duplicates.total else ""
    return (
        f"{duplicates.near_duplicates:,} of {duplicates.checked:,}{sample} have one; "
        f"{duplicates.copies:,} of {duplicates.total:,} are exact copies of another"
    )


def _print_examples(screen: Console, examples: Sequence[NearDuplicate]) -> None:
    for example in examples[:SHOWN_DUPLICATES]:
        for identifier, text in (
            (example.id, example.text),
            (example.duplicate_id, example.duplicate_text),
        ):
            screen.print(
                Text(f"    {one_line(identifier)}: {one_line(text)}", style="dim"),
                overflow="ellipsis",
                no_wrap=True,
            )
        screen.print()


def _print_suspicious(screen: Console, inspection: Inspection) -> None:
    if inspection.suspicious:
        screen.print(Text("\nThe most suspicious training pairs", style="bold"))
    for pair in inspection.suspicious:
        screen.print(
            Text(
                f"{one_line(pair.query_id)} – {one_line(pair.doc_id)}: similarity "
                f"{pair.similarity:.3f}, "
                f"{pair.closer_random_share:.1%} of random documents are closer"
            )
        )
        for text in (pair.query, pair.document):
            screen.print(
                Text(f"    {one_line(text)}", style="dim"), overflow="ellipsis", no_wrap=True
            )


def _print_advice(screen: Console, inspection: Inspection) -> None:
    advice = inspection.advice
    screen.print(Text("Advice", style="bold"))
    screen.print(Text(f"--method {advice.method}, the default"))
    if advice.if_labels_false is not None:
        retention = "" if advice.k is None else f" --set k={advice.k:g}"
        screen.print(
            Text(f"--method {advice.if_labels_false}{retention}, if the suspicious pairs are false")
        )
    for reason in advice.reasons:
        screen.print(Text(f"- {reason}"))
