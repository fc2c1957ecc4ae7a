"""``opera inspect``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import (
    ColumnsOption,
    DataArgument,
    DocumentPromptOption,
    DocumentsOption,
    EncodingOption,
    JsonOption,
    ModelOption,
    OverwriteOption,
    PairsOption,
    QueriesOption,
    QueryPromptOption,
    RelevantOption,
    SeedOption,
    SkipOption,
    load_training_data,
    one_source,
    path_option,
    setting_option,
    show,
)
from opera.cli.results import labels_sentence
from opera.cli.screen import Screen, flat
from opera.core.intervals import FEW_QUERIES, few_queries

if TYPE_CHECKING:
    from opera.diagnostics.duplicates import Duplicates
    from opera.diagnostics.inspect import Inspection

MUCH = 0.6
"""From this share of hard pairs on the model is a likelier reason than the labels."""
SEEN = (
    (0.9, "fine-tuning is mostly safe"),
    (0.5, "some are new, and fine-tuning may not carry over to them"),
    (0.25, "most are new, and fine-tuning may not carry over to them"),
    (1e-9, "most are new, and fine-tuning can make retrieval worse"),
    (0.0, "all are new, and fine-tuning can make retrieval worse"),
)
"""What follows for a split, from which share on of its documents that are in train."""


def inspect(
    *,
    data: DataArgument = None,
    model: ModelOption,
    shown: Annotated[int, typer.Option("--show", help="how many pairs to show", min=0)] = 8,
    train: Annotated[
        Path | None,
        path_option(
            "--train", "train, hand over nothing, and list the pairs that look wrong: .csv"
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    decisions: Annotated[list[str] | None, setting_option("decisions")] = None,
    relevant_grade: RelevantOption = 1,
    seed: SeedOption = 0,
    query_prompt: QueryPromptOption = None,
    document_prompt: DocumentPromptOption = None,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
    as_json: JsonOption = False,
) -> None:
    """Look at a data set before training: what is wrong, what to do, the pairs to look at."""
    loaded = load_training_data(
        one_source(data, pairs, documents, queries, columns, encoding, skip_bad_rows), model
    )

    from opera.diagnostics.inspect import inspect as inspect_data

    seen = inspect_data(
        loaded,
        model=model,
        show=shown,
        seed=seed,
        relevant_grade=relevant_grade,
        train=train,
        overwrite=overwrite,
        decisions=decisions or None,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    text = partial(print_inspection, inspection=seen, listed=train)
    show(as_json, seen.as_dict, text)


def print_inspection(screen: Screen, inspection: Inspection, listed: Path | None = None) -> None:
    """Print one page: what is wrong, what to do, the pairs to look at."""
    from opera.data.names import source_title

    screen.heading(f"{source_title(inspection.source)} with {inspection.model}")
    screen.lines(
        inspection.size,
        *(f"note: {note}" for note in inspection.notes),
    )
    screen.heading("\nWhat stands out")
    screen.lines(*(f"- {finding}" for finding in _findings(inspection)))
    screen.heading("\nWhat to do")
    screen.lines(*(f"- {step}" for step in _steps(inspection, listed)))
    if inspection.suspicious:
        screen.heading(
            "\nHardest for this model: random documents that are closer, query, document"
        )
    for pair in inspection.suspicious:
        share = f"{pair.closer_random_share:.0%}".rjust(4)
        screen.cut(f"{share}  {flat(pair.query_id)}: {flat(pair.query)}")
        screen.cut(f"      {flat(pair.doc_id)}: {flat(pair.document)}", style="dim")
    if inspection.noisy_labels is not None:
        screen.heading("\nAfter training")
        screen.lines(labels_sentence(inspection.noisy_labels, str(listed)))
    elif listed is not None:
        screen.lines("\nAfter training: too few pairs to say which look wrong; nothing is listed")
    screen.lines(
        "\n--json: also counts, similarities, duplicates and rows left out, with their texts"
    )


def _findings(inspection: Inspection) -> Iterator[str]:
    """Say what is wrong with the data, or may be."""
    quality, counts = inspection.quality, inspection.counts
    if quality.noise is not None:
        yield (
            f"{quality.noise:.1%} ± {quality.noise_error:.1%} of the training pairs are hard for "
            "this model: random documents score as well"
        )
    for split, leak in inspection.leaks.items():
        if leak.leaked_queries:
            yield (
                f"{split}: {leak.leaked_queries:,} of {leak.queries:,} queries are almost repeats "
                f"of train's; {leak.leaked_pairs:,} of {leak.pairs:,} pairs share the document"
            )
    for name, duplicates in (("documents", inspection.documents), ("queries", inspection.queries)):
        if duplicates.near_duplicates or duplicates.copies:
            yield f"{name}: {_duplicates_in_words(duplicates)}"
    yield from (seen_sentence(split, seen) for split, seen in inspection.seen.items())
    if not inspection.leaks:
        yield "The data has only train; opera train will draw test and dev (--expected-documents)."
    elif few := few_queries(counts.get("test_queries", FEW_QUERIES)):
        yield few.removeprefix("warning: ")


def _steps(inspection: Inspection, listed: Path | None) -> Iterator[str]:
    """Say what to do next."""
    noise = inspection.quality.noise
    if noise is not None and noise > MUCH:
        yield (
            "So many labels are rarely wrong: look at the pairs below, or inspect with a better "
            "model."
        )
    if listed is None:
        yield (
            "--train FILE.csv trains a model that is not kept and lists the pairs that look wrong "
            "to it: what is hard for a base model is often right."
        )
    yield "opera train draws pairs less that look wrong, and lists them too."


def seen_sentence(split: str, seen: float) -> str:
    """Say how many of a split's documents are in train, a share, and what that means."""
    known, *_ = (words for least, words in SEEN if seen >= least)
    return f"{split}: {seen:.0%} of its documents are in train; {known}"


def _duplicates_in_words(duplicates: Duplicates) -> str:
    sample = " (at random)" if duplicates.checked < duplicates.total else ""
    return (
        f"{duplicates.near_duplicates:,} of {duplicates.checked:,}{sample} have a near-duplicate, "
        f"{duplicates.copies:,} of {duplicates.total:,} an exact copy"
    )
