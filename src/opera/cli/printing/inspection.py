"""An inspection as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.console import one_line
from opera.diagnostics.inspect.overlap import Duplicates, Twin
from opera.diagnostics.inspect.quality import Quality
from opera.diagnostics.inspect.report import Inspection

BARS = " ▁▂▃▄▅▆▇█"
TWINS_SHOWN = 3


def print_inspection(screen: Console, seen: Inspection) -> None:
    """Print everything, the advice last."""
    screen.print(Text(f"{seen.source} under {seen.model}\n", style="bold"))
    _print_counts(screen, seen)
    _print_similarities(screen, seen)
    _print_retentions(screen, seen)
    _print_overlap(screen, seen)
    _print_suspicious(screen, seen)
    advice = seen.advice
    with_k = "" if advice.k is None else f" --set k={advice.k:g}"
    screen.print(Text("\nAdvice", style="bold"))
    screen.print(Text(f"--method {advice.method}{with_k}" + (", if pairs may be false" if advice.if_trusted else "")))
    if advice.if_trusted:
        screen.print(Text(f"--method {advice.if_trusted}, if you trust your labels"))
    screen.print(Text(advice.reason))


def histogram(shares: Sequence[float], highest: float) -> str:
    """Draw shares as one line of bars, ``highest`` being a full one; what is there at all shows."""
    levels = [0 if share == 0 else max(1, round(share / highest * (len(BARS) - 1))) for share in shares]
    return "".join(BARS[level] for level in levels)


def _print_counts(screen: Console, seen: Inspection) -> None:
    screen.print(Text("Counts", style="bold"))
    screen.print(Text(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in seen.counts.items())))
    for name, grades in seen.grades.items():
        screen.print(Text(f"{name} grades: " + ", ".join(f"{count:,} of {grade}" for grade, count in grades.items())))
    spread = seen.spread
    lowest, quarter, median, three_quarters, highest = (f"{value:g}" for value in spread.quantiles)
    screen.print(
        Text(
            f"positives a query: mean {spread.mean:.1f}; lowest {lowest}, 25% {quarter}, median {median}, "
            f"75% {three_quarters}, highest {highest}; {spread.one:.0%} of the queries have one. "
            f"The most labelled document stands in {spread.most_common_document:,} pairs."
        )
    )
    for note in seen.notes:
        screen.print(Text(f"note: {note}"))


def _print_similarities(screen: Console, seen: Inspection) -> None:
    found, quality = seen.similarities, seen.quality
    highest = max(*found.labelled_counts, *found.random_counts)
    screen.print(Text("\nSimilarity of query and document", style="bold"))
    table = Table()
    table.add_column("")
    for name in ("lowest", "5%", "25%", "median", "75%", "95%", "highest"):
        table.add_column(name, justify="right")
    table.add_column(f"from {found.edges[0]:.2f} to {found.edges[-1]:.2f}")
    for name, values, shares in (
        ("training pairs", found.labelled, found.labelled_counts),
        ("random pairs", found.random, found.random_counts),
    ):
        table.add_row(name, *(f"{value:.3f}" for value in values), histogram(shares, highest))
    screen.print(table)
    screen.print(
        Text(
            f"A labelled document is closer to its query than a random one with probability {quality.auc:.3f} (AUC; "
            f"ranked among {quality.pool:,} positives of other queries or more).\n"
            f"{_noise_in_words(quality)}"
        )
    )


def _noise_in_words(quality: Quality) -> str:
    if quality.noise is None:
        return "That is too few to estimate noise."
    return (
        f"Estimated noise: {quality.noise:.1%} ± {quality.noise_error:.1%} of the pairs have a document that might as "
        "well be random: false labels, or relevance that this model does not see. False labels that are close to the "
        f"query are not among them. The others beat random pairs with probability {quality.pooled_auc:.3f}."
    )


def _print_retentions(screen: Console, seen: Inspection) -> None:
    screen.print(Text("\nWhat static pruning would keep", style="bold"))
    table = Table()
    for name in ("k", "pairs", "queries lost", "lowest similarity", "γ, if so", "E over ft, if so"):
        table.add_column(name, justify="right")
    for row in seen.retentions:
        cells = (f"{row.kept_pairs:,}", f"{row.lost_queries:.1%}", f"{row.lowest:.3f}")
        table.add_row(f"{row.k:g}", *cells, f"{row.precision:.3f}", f"{row.gain:+.4f}")
    screen.print(table)
    screen.print(
        Text(
            f"γ: share of true pairs among those kept, and E: Theorem 1, if the estimated noise is indeed random "
            f"(all pairs: {seen.quality.true_share:.3f} true; dp: {seen.dynamic_gain:+.4f}). The theorem knows "
            "nothing of coverage: lost queries are its price."
        )
    )


def _print_overlap(screen: Console, seen: Inspection) -> None:
    screen.print(Text("\nNear-duplicates (80% of the words shared)", style="bold"))
    for what, found in (("documents", seen.documents), ("queries", seen.queries)):
        screen.print(Text(f"{what}: {_duplicates_in_words(found)}"))
        _print_twins(screen, found.examples)
    for split, leaked in seen.leaks.items():
        screen.print(
            Text(
                f"{split} in train: {leaked.near_queries:,} of {leaked.queries:,} queries have a near-duplicate among "
                f"the training queries, and {leaked.leaked_pairs:,} of {leaked.pairs:,} pairs have their "
                f"document labelled for it; {leaked.shared_documents:,} of {leaked.documents:,} relevant "
                "documents are relevant in train too"
            )
        )
        _print_twins(screen, leaked.examples)
    if not seen.leaks:
        screen.print(Text("no split but train: opera train will draw a test split from it, by seed"))


def _duplicates_in_words(found: Duplicates) -> str:
    of = f"{found.looked_up:,}" if found.looked_up == found.total else f"{found.looked_up:,} looked up at random"
    return f"{found.near:,} of {of} have one; {found.copies:,} of {found.total:,} repeat another word for word"


def _print_twins(screen: Console, twins: Sequence[Twin]) -> None:
    for twin in twins[:TWINS_SHOWN]:
        for identifier, text in ((twin.text_id, twin.text), (twin.twin_id, twin.twin)):
            screen.print(
                Text(f"    {one_line(identifier)}: {one_line(text)}", style="dim"), overflow="ellipsis", no_wrap=True
            )
        screen.print()


def _print_suspicious(screen: Console, seen: Inspection) -> None:
    if seen.suspicious:
        screen.print(Text("\nThe most suspicious training pairs", style="bold"))
    for pair in seen.suspicious:
        screen.print(
            Text(
                f"{one_line(pair.query_id)} – {one_line(pair.doc_id)}: similarity {pair.similarity:.3f}, "
                f"{pair.beaten_by:.1%} of random documents are closer"
            )
        )
        for text in (pair.query, pair.document):
            screen.print(Text(f"    {one_line(text)}", style="dim"), overflow="ellipsis", no_wrap=True)
