"""What ``opera data`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from opera.cli.printing.console import table_of
from opera.core.terminal import place, say
from opera.data import RetrievalData
from opera.data.catalogue import PAPER_SETS, CountDifference, PaperSet
from opera.data.irds_source import stored_at

COUNTS = {
    "documents": "documents",
    "train_queries": "train queries",
    "train_pairs": "train pairs",
    "test_queries": "test queries",
    "test_pairs": "test pairs",
}


def print_sets(screen: Console) -> None:
    """Print the paper's data sets: sizes, licences, sources and disk."""
    sizes, origins = [], []
    for entry in PAPER_SETS.values():
        counts = [f"{count:,}" for count in entry.table_counts.values()]
        here = "yes" if stored_at(entry.splits) else ""
        sizes.append((entry.name, f"{entry.title}, {entry.domain}", here, *counts))
        fetch = amount(entry.download_bytes) if entry.download_bytes else "on request"
        disk = (f"~{amount(entry.text_bytes)}", amount(entry.embedding_bytes()))
        origins.append((entry.name, ", ".join(entry.splits.values()), entry.licence, fetch, *disk))
    screen.print(Text("the paper's data sets (Table 8)", style="bold"))
    screen.print(table_of(("NAME", "in the paper", "here", *COUNTS.values()), sizes, words=3))
    heads = ("NAME", "ir_datasets", "licence", "to fetch", "texts", "embeddings")
    screen.print(table_of(heads, origins, words=3))
    screen.print(
        Text(
            "texts: in OPERA's cache. embeddings: of 1,024 fp32 numbers per document, as "
            "bge-large's."
        )
    )
    screen.print(
        Text(
            "opera data get NAME fetches one; then paper:NAME is a data set wherever one is asked "
            "for."
        )
    )


def set_record(entry: PaperSet) -> dict[str, Any]:
    """Return a data set as ``opera data --json`` prints it."""
    return {
        "name": entry.name,
        "title": entry.title,
        "domain": entry.domain,
        "source": entry.source,
        "ir_datasets": dict(entry.splits),
        "licence": entry.licence,
        "counts": entry.table_counts,
        "relevant_grade": entry.relevant_grade,
        "download_bytes": entry.download_bytes,
        "text_bytes_estimate": entry.text_bytes,
        "embedding_bytes": entry.embedding_bytes(),
        "here": stored_at(entry.splits) is not None,
    }


def print_counts(
    loaded: RetrievalData,
    counts: Mapping[str, int],
    entry: PaperSet | None,
    differences: Sequence[CountDifference],
    out: Path | None,
) -> None:
    """Print the counts of a data set that was fetched, and where they differ from Table 8."""
    listed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    say(f"{loaded.source}: {listed}")
    for note in loaded.notes:
        say(f"  note: {note}")
    for found in differences:
        reason = f" ({found.reason})" if found.reason else ""
        say(f"  {COUNTS[found.name]}: {found.found:,}, and {found.table:,} in Table 8{reason}")
    if entry is not None and not all(found.reason for found in differences):
        say(
            "  no reason is known; are its files whole? They are read anew without "
            f"{place(stored_at(entry.splits))}"
        )
    if entry is not None and not differences:
        say("  all counts are those of Table 8")
    if out is not None:
        say(f"  written to {place(out)}")


def amount(size: float) -> str:
    """Write a number of bytes with three digits: ``6.75 GB``."""
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
