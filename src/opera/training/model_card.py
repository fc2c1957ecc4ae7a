"""The README.md in a trained model's folder: the card that the Hugging Face Hub shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opera.core.files import replace_file
from opera.core.intervals import few_queries
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.changes import Change
from opera.runs.folder import CARD_FILE
from opera.runs.guard_words import share_sentence, verdict_sentence
from opera.runs.record import RunRecord, mean_of_sets
from opera.training.card_metadata import base_name, metadata
from opera.training.repeat import repeat_command, short_data

MODEL_CARD = """---
{metadata}
---

# {base}, adapted with OPERA

`{base}` adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Figures

{figures}

## Data

`{data}`: {counts}.{refitted}

{reading}

`mask_known_positives` was {masked}.

## Use

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("path/to/this/folder")
scores = model.similarity(model.encode_query(["a question"]), model.encode_document(["a document"]))
```

## Repeat

```sh
{command}
```

Files and folders stand by their names; put your own paths. {versions}.
All settings, with the automatic ones filled in, are in the run's `run.json`.
"""

VECTORS_CARD = """# An adapter for the vectors of `{base}`, made with OPERA

Adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

## Figures

{figures}

## Use

`adapter.py` needs NumPy alone; copy it with `adapter.npz`.

```python
import adapter
queries = adapter.queries(vectors)  # vectors of the service, [n, d]; the result has length 1
documents = adapter.documents(vectors){note}
```

## Repeat

```sh
{command}
```

{versions}.
"""

REFITTED = " The model handed over was trained again with the queries of dev in train."

Measured = Mapping[str, Mapping[str, float]]


def write_model_card(
    folder: Path, record: RunRecord, measures: Measured, changes: Mapping[str, Change], queries: int
) -> None:
    """Write the model's README.md: what it is, its measures before and after, how to load and how to repeat it.

    Args:
        folder: the model's folder.
        record: the run, with how training went.
        measures: ``before``, ``fine_tuned`` and ``after``, as in ``measures.json``.
        changes: the change of each measure, with its interval.
        queries: how many test queries there are.
    """
    assert record.training is not None
    from_files = record.settings["query_vectors"] is not None
    header = metadata(record, {name: measures["after"][name] for name in DEFAULT_MEASURES})
    text = (VECTORS_CARD if from_files else MODEL_CARD).format(
        metadata=header.to_yaml().strip(),
        base=base_name(record.model.source),
        data=short_data(record),
        method=record.settings["method"],
        steps=record.training.steps,
        seed=record.seed,
        figures=_figures(record, measures, changes, queries),
        refitted=REFITTED if record.guard is not None and record.guard.refit else "",
        counts=", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in record.data.counts.items()
        ),
        note="  # normalised only" if record.settings["adapter"] != "both" else "",
        masked=json.dumps(record.settings["mask_known_positives"]),
        reading="" if from_files else _reading(record),
        command=repeat_command(record),
        versions=", ".join(f"{name} {number}" for name, number in record.versions.items()),
    )
    replace_file(folder / CARD_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _figures(
    record: RunRecord, measures: Measured, changes: Mapping[str, Change], queries: int
) -> str:
    """Measures on test with the interval of their change, the verdict, and the sizes of a Matryoshka model."""
    rows = [
        f"| {name} | {' | '.join(f'{measures[when][name]:.4f}' for when in ('before', 'fine_tuned', 'after'))} | "
        f"{changes[name].in_points() if name in changes else ''} |"
        for name in DEFAULT_MEASURES
    ]
    table = [
        f"| test split, {queries:,} queries | before | fine-tuned | handed over | change in points (95% interval) |",
        "|---|---|---|---|---|",
        *rows,
    ]
    sentences = [
        "The intervals are Student's t over the test queries; they hold for this model, not for other seeds."
    ]
    if warning := few_queries(queries):
        sentences.append(f"{warning.removeprefix('warning: ').capitalize()}.")
    verdict = [] if record.guard is None else [f"Verdict: {verdict_sentence(record.guard)}."]
    verdict.append(
        share_sentence(record.guard) if record.guard else "The weights are the fine-tuned ones."
    )
    parts = [
        "\n".join(table),
        " ".join(sentences),
        " ".join(verdict),
        *_sets(record),
        *_sizes(record),
    ]
    return "\n\n".join(parts)


def _sets(record: RunRecord) -> list[str]:
    """The table of several data sets, each ranked among its own documents; empty for a run on one."""
    if not record.sets:
        return []
    name = DEFAULT_MEASURES[0]
    measured = [(each.name, each.test) for each in record.sets] + [
        ("mean of the sets", mean_of_sets(record.sets))
    ]
    rows = [
        f"| {label} | {test['before'][name]:.4f} | {test['after'][name]:.4f} |"
        for label, test in measured
        if test is not None
    ]
    return ["\n".join([f"| data set, {name} | before | handed over |", "|---|---|---|", *rows])]


def _sizes(record: RunRecord) -> list[str]:
    """The table of the first dimensions' measures; empty for a run without sizes."""
    if not record.matryoshka:
        return []
    name = DEFAULT_MEASURES[0]
    rows = [
        f"| {size.size} | {size.before[name]:.4f} | {size.after[name]:.4f} |"
        for size in record.matryoshka
    ]
    head = [f"| first dimensions alone, {name} | before | handed over |", "|---|---|---|"]
    advice = "`SentenceTransformer(folder, truncate_dim=SIZE)` keeps the first dimensions."
    return ["\n".join([*head, *rows]), advice]


def _reading(record: RunRecord) -> str:
    """Say how texts were read: the lengths, and the prompts."""
    settings = record.settings
    query, document = settings.get("max_query_length"), settings.get("max_passage_length")
    lengths = (
        "Training and these measures read whole texts."
        if query is None or document is None
        else f"Training and these measures read {query} tokens of a query and {document} of a document; "
        + (
            "so does this model."
            if settings.get("save_lengths")
            else "this model keeps its own limit."
        )
    )
    return f"{lengths} {_prompts(settings)}"


def _prompts(settings: Mapping[str, Any]) -> str:
    prompts = {role: settings.get(f"{role}_prompt") for role in ("query", "document")}
    plural = {"query": "queries", "document": "documents"}
    named = [
        f"{plural[role]} with `{json.dumps(prompt)}`" for role, prompt in prompts.items() if prompt
    ]
    if not named:
        return "No prompt goes before a text."
    where = (
        "in mining and evaluation; training went without"
        if settings.get("prompt_phases") == "search"
        else "throughout the run"
    )
    return f"`encode_query` and `encode_document` add prompts: they begin {' and '.join(named)}, as {where}."
