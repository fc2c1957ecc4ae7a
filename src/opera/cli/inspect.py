"""``opera inspect``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.cli.options import (
    MODELS,
    DataArgument,
    JsonOption,
    RelevantOption,
    Screen,
    SeedOption,
    TableOptions,
    flat,
    setting_option,
    show,
    source_option,
    with_options,
)
from opera.config.arguments import ENCODING
from opera.core.figures import FEW_QUERIES, few_queries

if TYPE_CHECKING:
    from opera.diagnostics.inspect import Inspection

WEAK_MODEL = 0.6
"""If more of the pairs are hard, a weak model is a likelier reason than wrong labels."""
NOVELTY = (
    (0.9, "fine-tuning is mostly safe"),
    (0.5, "some are new, and fine-tuning may not carry over to them"),
    (0.25, "most are new, and fine-tuning may not carry over to them"),
    (1e-9, "most are new, and fine-tuning can make retrieval worse"),
    (0.0, "all are new, and fine-tuning can make retrieval worse"),
)
"""The least fraction of a split's documents that are in train, and what follows from it."""
DRAWN = {
    "random": "; opera train draws each {:.0f} times as a random negative",
    "labelled": "; opera train leaves them out of the random negatives, because it would draw each "
    "{:.0f} times",
}
"""What a training does with documents that have no training pair, by its kind of negatives."""


@with_options(*ENCODING)
def inspect(
    *,
    data: DataArgument = None,
    model: Annotated[
        str | None,
        source_option(
            "--model", f"{MODELS}; without one, OPERA leaves out noise, near-duplicates and lengths"
        ),
    ] = None,
    shown: Annotated[int, typer.Option("--show", help="how many pairs to show", min=0)] = 8,
    decisions: Annotated[list[str] | None, setting_option("decisions")] = None,
    relevant_grade: RelevantOption = None,
    seed: SeedOption = 0,
    tables: TableOptions,
    as_json: JsonOption = False,
    **encoding: Any,
) -> None:
    """Check a data set before training: problems, next steps, and the pairs to look at."""
    from opera.data import load_data
    from opera.retrieval.locate import locate_model

    source = tables.source(data, strict=not decisions)
    if model is not None:
        locate_model(model)
    loaded = load_data(source)
    loaded.training_split()  # mistakes are reported before torch loads for seconds

    from opera.diagnostics.inspect import inspect as inspect_data

    inspection = inspect_data(
        loaded,
        model=model,
        show=shown,
        seed=seed,
        relevant_grade=relevant_grade,
        decisions=decisions or None,
        **encoding,
        **(tables.reading if decisions else {}),
    )
    show(as_json, inspection.as_dict, partial(print_inspection, inspection=inspection))


def print_inspection(screen: Screen, inspection: Inspection) -> None:
    """Print a page: problems, next steps, the pairs to look at."""
    screen.heading(inspection.title)
    screen.lines(
        inspection.size,
        *(f"note: {note}" for note in inspection.notes),
    )
    screen.heading("\nFindings")
    screen.lines(*(f"- {finding}" for finding in _findings(inspection)))
    screen.heading("\nNext steps")
    screen.lines(*(f"- {step}" for step in _steps(inspection)))
    if inspection.suspicious:
        screen.heading(
            "\nHardest for this model, but often correct (random documents that are closer, pair):"
        )
    for pair in inspection.suspicious:
        closer = f"{pair.closer_random_share:.0%}".rjust(4)
        query_place, document_place = flat(pair.query_id), f"{flat(pair.doc_id)}: "
        if pair.file is not None:
            query_place, document_place = f"{flat(pair.file)}:{pair.line}", ""
        screen.cut(f"{closer}  {query_place}: {flat(pair.query)}")
        screen.cut(f"      {document_place}{flat(pair.document)}", style="dim")
    screen.lines("For counts, duplicates and skipped rows with texts, pass --json.")
    screen.heading("Train with this command:")
    screen.commands(inspection.command)


def _findings(inspection: Inspection) -> Iterator[str]:
    """Say what is wrong with the data, or may be."""
    from opera.data.placeholders import placeholders_sentence

    quality, counts = inspection.quality, inspection.counts
    if (sentence := placeholders_sentence(inspection.placeholders)) is not None:
        yield f"warning: {sentence}"
    if quality is not None and quality.noise is not None:
        yield (
            f"{quality.noise:.1%} of the training pairs, {quality.low:.1%} to {quality.high:.1%}, "
            "are hard for this model: random documents score as well"
        )
    repeat = "repeat" if inspection.model is None else "almost repeat"
    for split, leak in inspection.leaks.items():
        if leak.leaked_queries:
            yield (
                f"{split}: {leak.leaked_queries:,} of {leak.queries:,} queries {repeat} a train "
                f"query; {leak.leaked_pairs:,} of {leak.pairs:,} pairs share its document"
            )
    for name, duplicates in (("documents", inspection.documents), ("queries", inspection.queries)):
        if duplicates.near_duplicates or duplicates.copies:
            sample = " (a random sample)" if duplicates.checked < duplicates.total else ""
            checked = f"{duplicates.checked:,}{sample}"
            parts = [f"{duplicates.near_duplicates:,} of {checked} have a near-duplicate"]
            parts = parts if duplicates.checked else []
            parts.append(f"{duplicates.copies:,} of {duplicates.total:,} repeat another exactly")
            yield f"{name}: {', '.join(parts)}"
    for split, seen in inspection.seen.items():
        meaning = next(words for least, words in NOVELTY if seen >= least)
        yield f"{split}: {seen:.0%} of its documents are in train; {meaning}"
    yield from (lengths.sentence for lengths in inspection.lengths)
    mean = counts["train_pairs"] / counts["train_queries"]
    yield f"train: {mean:.1f} relevant documents per query on average"
    if inspection.unlabelled and inspection.negatives in (None, *DRAWN):
        splits = "" if inspection.leaks else ", even before test and dev leave train"
        drawn = DRAWN.get(inspection.negatives or "", "").format(inspection.draws)
        yield (
            f"{inspection.unlabelled:,} of {counts['documents']:,} documents have no training pair"
            f"{splits}{drawn}"
        )
    if not inspection.leaks:
        yield "The data has only train; opera train splits off test and dev (--expected-documents)."
    elif few := few_queries(counts.get("test_queries", FEW_QUERIES)):
        yield few.removeprefix("warning: ")


def _steps(inspection: Inspection) -> Iterator[str]:
    """Say what to do next."""
    if inspection.model is None:
        yield "Add --model MODEL to see noise, labels that look wrong, near-duplicates and lengths."
    noise = None if inspection.quality is None else inspection.quality.noise
    for lengths in inspection.lengths:
        if lengths.advice is not None:
            yield f"Long {'queries' if lengths.role == 'query' else 'documents'}: {lengths.advice}."
    if noise is not None and noise > WEAK_MODEL:
        yield (
            "So many labels are rarely wrong: look at the pairs below, or inspect with a better "
            "model."
        )
    yield "opera train samples pairs that look wrong less often, and lists them."
